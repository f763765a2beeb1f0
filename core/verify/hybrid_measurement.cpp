// See hybrid_measurement.hpp. The model is ours, whatever the run file says, because the bounds of GPU-004
// and GPU-005 are stated for it; its token ids are arbitrary numbers, because only time and traffic are
// looked at.
#include "core/verify/hybrid_measurement.hpp"

#include <fmt/format.h>

#include <chrono>

#include "core/verify/context.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kWarmUp = 2, kUpdates = 100, kFewest = 10;
constexpr auto kLongest = std::chrono::seconds(60);  // a slow device is measured over fewer updates

ModelSpec model_350m() {
  ModelSpec m;
  m.name = "350m";
  m.vocab = 32768;
  m.hidden = 1024, m.layers = 24, m.heads = m.kv_heads = 16, m.head_dim = 64, m.intermediate = 2816;
  m.max_positions = 2048;
  m.tied = true;
  return m;
}

runfile::RunConfig run_350m(const runfile::RunConfig& from) {
  runfile::RunConfig c = in_fp32(from);
  c.model = model_350m();
  c.weights.reset();
  c.run.micro_batch = 1, c.run.accumulate = 4, c.run.seq_len = 2048;
  c.run.optimizer = Optimizer::kAdamW;
  c.run.recompute = Recompute::kNone;
  c.precision = from.given.count("train.precision") ? from.precision : "bf16";
  if (c.precision == "tf32") c.run.compute = DType::kTF32;
  if (c.precision == "bf16") c.run.weight = c.run.compute = DType::kBF16, c.run.master = DType::kF32;
  return c;
}

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

HybridFigures measure(Context& context) {
  if (!context.subjects.on_device())
    throw NotJudged(fmt::format("the {} backend transfers nothing", context.subjects.backend()));
  if (!context.subjects.offers("hybrid"))
    throw NotJudged(fmt::format("the {} backend offers no hybrid mode", context.subjects.backend()));
  HybridFigures f;
  f.is_350m = !context.small;
  f.run = context.small ? context.run : run_350m(context.run);
  Rig rig(context, f.run, {.mode = "hybrid", .feed = arbitrary_ids(f.run.model.vocab), .copies = 0});
  const double lr = 1e-4;
  for (std::uint64_t t = 0; t < kWarmUp; ++t) rig.step(t, lr);
  const plugin::Counters before = rig.session().counters();
  const std::optional<double> transfer_before = rig.session().metric("transfer_ns");
  const auto begin = context.now();
  for (; f.updates < kUpdates; ++f.updates) {
    if (f.updates >= kFewest && context.now() - begin > kLongest) break;
    const auto start = context.now();
    rig.step(kWarmUp + f.updates, lr);
    f.wall_ns += static_cast<std::uint64_t>(std::chrono::nanoseconds(context.now() - start).count());
  }
  f.counted = rig.session().counters() - before;
  if (transfer_before) f.transfer_ns = rig.session().metric("transfer_ns").value_or(0) - *transfer_before;
  f.micro_batches = f.updates * f.run.run.accumulate;
  return f;
}

}  // namespace

std::string HybridFigures::words() const {
  return fmt::format("{} updates of {} x {} sequences of {} tokens, {:.1f}M parameters, {}", updates,
                     run.run.accumulate, run.run.micro_batch, run.run.seq_len,
                     static_cast<double>(count_parameters(run.model).total) / 1e6, run.precision);
}

const HybridFigures& Context::hybrid() {
  if (!no_hybrid_.empty()) throw NotJudged(no_hybrid_);
  if (!hybrid_) {
    try {
      hybrid_ = std::make_shared<HybridFigures>(measure(*this));
    } catch (const NotJudged& e) {
      no_hybrid_ = e.what();
      throw;
    }
  }
  return *hybrid_;
}

}  // namespace trainhost::verify
