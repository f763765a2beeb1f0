// See trainer_run.hpp. Every argument from the host is checked before it reaches a kernel.
#include "core/executor/trainer_run.hpp"

#include <chrono>

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

Run::Run(const th_host* host, const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits,
         const MakeBackend& make, Allocator* own)
    : host_(host),
      program_(step::build_program(model, run, traits)),
      plan_(placement::place(program_)),
      storage_(host, program_, plan_, own),
      backend_(require_backend(make(program_, storage_), traits.trainer)),
      walker_(program_, storage_, *backend_),
      tensors_(program_, storage_, traits.trainer),
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

void Run::check_ids(const std::int32_t* tokens, const std::int32_t* targets, std::uint64_t n) const {
  const std::int64_t vocab = static_cast<std::int64_t>(program_.model.vocab);
  for (std::uint64_t i = 0; i < n; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab)
      bad_argument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                   "; the vocabulary has " + std::to_string(vocab));
    if ((targets[i] < 0 || targets[i] >= vocab) && targets[i] != -100)
      bad_argument("target " + std::to_string(i) + " is " + std::to_string(targets[i]) +
                   "; the vocabulary has " + std::to_string(vocab));
  }
}

void Run::check_step(const th_step& in) const {
  const RunSpec& r = program_.run;
  const bool evaluate = in.flags & TH_STEP_EVALUATE;
  const std::uint64_t most = evaluate ? r.micro_batch : std::uint64_t{r.accumulate} * r.micro_batch;
  if (!evaluate && r.mode == RunMode::kInference)
    throw abi::StatusError(TH_E_STATE, "an inference run has no update");
  if (in.seq != r.seq_len || in.batch == 0 || in.batch > most || (!evaluate && in.batch != most))
    bad_argument("step with " + std::to_string(in.batch) + " x " + std::to_string(in.seq) +
                 " tokens, but the run has " + std::to_string(most) + " x " + std::to_string(r.seq_len));
  if (!in.tokens || !in.targets) bad_argument("step without tokens or targets");
  check_ids(in.tokens, in.targets, std::uint64_t{in.batch} * in.seq);
  if (!evaluate && counted_targets(in.targets, std::uint64_t{in.batch} * in.seq) == 0)
    bad_argument("step without counted targets: all are -100");
}

void Run::step(const th_step& in, th_step_out& out) {
  require_complete_update();
  check_step(in);
  const auto start = Clock::now();
  const auto cancelled = [this] { return host_->cancelled && host_->cancelled(host_) != 0; };
  next_position_ = 0;  // a step overwrites the caches
  UpdateResult result;
  const Outcome outcome =
      in.flags & TH_STEP_EVALUATE
          ? walker_.evaluate(in.tokens, in.targets, in.batch, cancelled, result)
          : walker_.update({in.tokens, in.targets, in.lr, in.step_index}, cancelled, result);
  out.loss = result.loss;
  out.grad_norm = result.grad_norm;
  out.tokens_counted = result.counted;
  out.wall_ns = out.device_ns = ns_since(start);
  compute_ns_ += out.wall_ns;
  if (outcome == Outcome::kCancelled) throw abi::StatusError(TH_E_CANCELLED, "stopped by the host");
  if (outcome == Outcome::kNonFinite)
    throw abi::StatusError(TH_E_NONFINITE,
                           "loss " + std::to_string(result.loss) + ", gradient norm " +
                               std::to_string(result.grad_norm) + ": the update was not applied",
                           "reduce optimizer.lr, or increase optimizer.warmup_steps");
}

void Run::next(std::int32_t token, std::uint32_t position, float* logits) {
  require_complete_update();
  if (token < 0 || static_cast<std::uint64_t>(token) >= program_.model.vocab)
    bad_argument("token " + std::to_string(token) + " is outside the vocabulary");
  if (position >= program_.run.seq_len)
    bad_argument("position " + std::to_string(position) + ", but the cache has " +
                 std::to_string(program_.run.seq_len));
  if (position > next_position_)
    bad_argument("position " + std::to_string(position) + " before position " +
                 std::to_string(next_position_));
  walker_.next_logits(token, position, logits);
  next_position_ = position + 1;
}

double Run::metric(std::string_view key) {
  if (key == "peak_flops")
    if (const double measured = backend_->peak_flops(); measured > 0.0) return measured;
  throw abi::StatusError(TH_E_UNSUPPORTED,
                         "the " + program_.traits.trainer + " trainer has no metric named " + escaped(key));
}

void Run::start_profile(void* records, std::uint64_t bytes, th_moments* moments) {
  if (program_.run.mode == RunMode::kInference)
    throw abi::StatusError(TH_E_STATE, "an inference run has no update to profile");
  const std::uint64_t need = abi::record_bytes(program_);
  if (!records || bytes < need)
    bad_argument(std::to_string(bytes) + " bytes for records, but a step of this run needs " +
                 std::to_string(need));
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
