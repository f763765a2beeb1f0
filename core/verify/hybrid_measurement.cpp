// See hybrid_measurement.hpp. The model does not depend on the run file, because GPU-004 and GPU-005 state
// their bounds for 350M parameters. The token ids are arbitrary, because only time and transfers are
// measured.
#include "core/verify/hybrid_measurement.hpp"

#include <fmt/format.h>

#include <cassert>
#include <chrono>

#include "core/verify/context.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

// Two steps until allocators, kernels and caches are in their steady state. At least 10 steps average out the
// noise of one.
constexpr std::uint64_t kWarmUpSteps = 2, kMeasuredSteps = 100, kFewestSteps = 10;
constexpr auto kLongest = std::chrono::seconds(60);  // a slow device is measured over fewer steps

ModelSpec model_350m() {
  ModelSpec m;
  m.name = "350m";
  m.vocab = 32768;
  m.hidden = 1024, m.layers = 24, m.heads = m.kv_heads = 16, m.head_dim = 64, m.intermediate = 2816;
  m.max_positions = 2048;
  m.tied = true;
  return m;
}

/// 4 x 1 sequences of 2048 tokens in the precision of the run, bf16 if it sets none.
/// Everything that changes the work is fixed here; what remains of the run file is device, precision and
/// plugins.
runfile::RunConfig run_350m(const runfile::RunConfig& from) {
  runfile::RunConfig c = in_fp32(from);
  c.model = model_350m();
  c.weights.reset();
  c.run.micro_batch = 1, c.run.accumulate = 4, c.run.seq_len = 2048;
  c.run.optimizer = Optimizer::kAdamW;
  c.run.recompute = Recompute::kNone;
  c.precision = from.given.count("train.precision") ? from.precision : "bf16";
  // Types as the run file sets them for this precision: bf16 weights have an f32 master copy.
  if (c.precision == "tf32") c.run.compute = DType::kTF32;
  if (c.precision == "bf16") c.run.weight = c.run.compute = DType::kBF16, c.run.master = DType::kF32;
  return c;
}

// Counters only grow, so the difference of two readings is what happened between them.
plugin::Counters operator-(const plugin::Counters& a, const plugin::Counters& b) {
  plugin::Counters d;
  d.h2d = a.h2d - b.h2d, d.d2h = a.d2h - b.d2h;
  d.h2d_bytes = a.h2d_bytes - b.h2d_bytes, d.d2h_bytes = a.d2h_bytes - b.d2h_bytes;
  d.sync = a.sync - b.sync, d.sync_bytes = a.sync_bytes - b.sync_bytes;
  d.chunks = a.chunks - b.chunks, d.launches = a.launches - b.launches;
  d.compute_ns = a.compute_ns - b.compute_ns;
  d.exposed_transfer_ns = a.exposed_transfer_ns - b.exposed_transfer_ns;
  return d;
}

HybridMeasurement measure(Context& context) {
  // Both reasons depend on the backend alone, so Context::hybrid() keeps the answer.
  if (!context.trainers.on_device())
    throw CheckSkipped(fmt::format("the {} backend makes no transfers", context.trainers.backend()));
  if (!context.trainers.has_mode("hybrid"))
    throw CheckSkipped(fmt::format("the {} backend has no hybrid mode", context.trainers.backend()));
  HybridMeasurement f;
  f.is_350m = !context.small;
  // Tests run the small model: the code paths, without the bounds.
  f.run = context.small ? context.run : run_350m(context.run);
  // No copies of the weights are kept, so none are counted as needed memory.
  TrainerFixture fixture(context, f.run,
                         {.mode = "hybrid", .batches = arbitrary_ids(f.run.model.vocab), .copies = 0});
  const double lr = 1e-4;
  for (std::uint64_t t = 0; t < kWarmUpSteps; ++t) fixture.step(t, lr);
  const plugin::Counters before = fixture.session().counters();
  const std::optional<double> transfer_before = fixture.session().metric("transfer_ns");
  const auto begin = context.now();
  for (; f.steps < kMeasuredSteps; ++f.steps) {
    if (f.steps >= kFewestSteps && context.now() - begin > kLongest) break;
    const auto start = context.now();
    fixture.step(kWarmUpSteps + f.steps, lr);
    f.wall_ns += static_cast<std::uint64_t>(std::chrono::nanoseconds(context.now() - start).count());
  }
  assert(f.steps >= kFewestSteps);
  f.counted = fixture.session().counters() - before;
  // A metric is optional; what was absent before the steps is not reported after them.
  if (transfer_before) f.transfer_ns = fixture.session().metric("transfer_ns").value_or(0) - *transfer_before;
  f.micro_batches = f.steps * f.run.run.accumulate;
  return f;
}

}  // namespace

std::string HybridMeasurement::describe() const {
  return fmt::format("{} steps of {} x {} sequences of {} tokens, {:.1f}M parameters, {}", steps,
                     run.run.accumulate, run.run.micro_batch, run.run.seq_len,
                     static_cast<double>(count_parameters(run.model).total) / 1e6, run.precision);
}

// Several checks share the measurement. A skip is remembered too, or each of them would try again.
const HybridMeasurement& Context::hybrid() {
  if (!no_hybrid_.empty()) throw CheckSkipped(no_hybrid_);
  if (!hybrid_) {
    try {
      hybrid_ = std::make_shared<HybridMeasurement>(measure(*this));
    } catch (const CheckSkipped& e) {
      no_hybrid_ = e.what();
      throw;
    }
  }
  return *hybrid_;
}

}  // namespace trainhost::verify
