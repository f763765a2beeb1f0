// See trainer_run.hpp. Every argument from the host is checked before it reaches a kernel: ids index tables,
// and a wrong one would read or write outside the arena. One run is used by one thread at a time; the host
// guarantees it (InstanceCalls).
#include "core/executor/trainer_run.hpp"

#include <cassert>
#include <chrono>
#include <cmath>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"

namespace trainhost::executor {
namespace {

using Clock = std::chrono::steady_clock;
std::uint64_t ns_since(Clock::time_point t) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
}

std::unique_ptr<Backend> require_backend(std::unique_ptr<Backend> b, const std::string& trainer) {
  if (!b) throw abi::StatusError(TH_E_INTERNAL, "the " + trainer + " trainer returned no backend");
  return b;
}

}  // namespace

/// Order of construction: program, placement, arena, kernels. Members that refer to others come after them;
/// nothing is allocated after the constructor.
Run::Run(const th_host* host, const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits,
         const MakeBackend& make, Allocator* own)
    : host_(host),
      program_(step::build_program(model, run, traits)),
      plan_(placement::place(program_)),
      storage_(host, program_, plan_, own),
      ranks_(HostRanks::of(host)),
      backend_(require_backend(make(program_, storage_), traits.trainer)),
      walker_(program_, storage_, *backend_, ranks_.get()),
      tensors_(program_, storage_, walker_.ranks(), traits.trainer),
      kernel_set_(backend_->kernel_set()) {}

/// After an interrupted update the weights are neither the old nor the new ones.
void Run::require_complete_update() const {
  if (walker_.half_updated())
    throw abi::StatusError(TH_E_DEVICE_LOST,
                           "the last update failed before it was complete: the weights are not usable");
}

void Run::load(std::uint32_t scope, const th_tensor& t) { tensors_.load(scope, t); }

void Run::init(std::uint64_t seed) { tensors_.init(seed, *backend_); }

void Run::save(std::uint32_t scope, th_tensor_sink& sink) {
  require_complete_update();
  tensors_.save(scope, sink);
}

/// -100 marks a target that is not counted (the convention of PyTorch).
/// A training step has exactly the tokens of the plan; a validation batch may have fewer sequences.
/// A failed or cancelled step leaves the weights as they were: they are only changed after all micro-batches
/// and after the loss and the norm were found finite. The result is filled in any case, so that the host can
/// report the loss that was not finite.
void Run::step(const th_step& in, th_step_out& out) {
  require_complete_update();
  validate_step(program_, in);
  const auto start = Clock::now();
  const auto cancelled = [this] { return host_->cancelled && host_->cancelled(host_) != 0; };
  next_position_ = 0;  // a step overwrites the caches
  UpdateResult result;
  const Outcome outcome =
      in.flags & TH_STEP_EVALUATE
          ? walker_.evaluate(in.tokens, in.targets, in.starts, in.batch, cancelled, result)
          : walker_.update({in.tokens, in.targets, in.lr, in.step_index, in.starts}, cancelled, result);
  out.wall_ns = out.device_ns = ns_since(start);
  compute_ns_ += out.wall_ns;
  return_result(outcome, result, out);
}

/// Positions may go back, which discards the cache behind them, but not skip ahead: keys and values of
/// skipped positions would be missing.
void Run::next(std::int32_t token, std::uint32_t position, float* logits) {
  require_complete_update();
  validate_next(program_, token, position);
  if (position > next_position_)
    bad_argument("position " + std::to_string(position) + " before position " +
                 std::to_string(next_position_));
  walker_.next_logits(token, position, logits);
  assert(next_position_ <= program_.run.seq_len);
  next_position_ = position + 1;
}

double Run::metric(std::string_view key) {
  if (key == "peak_flops")
    if (const double measured = backend_->peak_flops(); measured > 0.0) return measured;
  // Of several ranks each has the squares of the elements that it counts in the norm of all.
  if (const std::optional<std::int32_t> layer =
          layer_of_metric(key, program_.model.layers, walker_.ranks().present()))
    if (const double squares = backend_->layer_grad_squares(*layer); squares >= 0.0)
      return std::sqrt(squares);
  throw abi::StatusError(TH_E_UNSUPPORTED,
                         "the " + program_.traits.trainer + " trainer has no metric named " + escaped(key));
}

/// The records are memory of the host, part of the plan; the size was asked for with record_bytes().
void Run::start_profile(void* records, std::uint64_t bytes, th_moments* moments) {
  validate_record_buffer(program_, records, bytes);
  timer_.emplace(program_, plan_, records, moments);
  walker_.watch(&*timer_);
}

void Run::read_profile(th_op_sink& sink) const {
  if (!timer_) throw abi::StatusError(TH_E_STATE, "the profiler was not started");
  timer_->read(sink);
}

void Run::stop_profile() {
  walker_.watch(nullptr);
  timer_.reset();
}

}  // namespace trainhost::executor
