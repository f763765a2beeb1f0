// See train.hpp and training_run.hpp. TrainingRun::run() states the order of events; the functions below it
// follow in that order.
#include "core/training/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cmath>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/training/run_status.hpp"
#include "core/training/training_run.hpp"

namespace trainhost::training {

/// Order: the plan needs no files; the output directory is locked before data and weights are read, so a
/// second run fails at once; a signal that comes before the first step leaves nothing behind.
Exit TrainingRun::run() {
  ranks_.together([&] { plan(); });
  bool finished = false;
  ranks_.together([&] { finished = ranks_.first() && !open_output(); });
  if (ranks_.of_first(std::uint64_t{finished})) return Exit::kDone;
  share_output();
  StopSignals::set_prints(ranks_.first());
  StopSignals signals;
  StopSignals::set_consequence("stopping before the first step");
  StopSignals::set_result("nothing is lost: no step was computed");
  try {
    try {
      // The first process writes the cache of tokenized text, and the others read it.
      for (const bool of_first : {true, false}) {
        ranks_.together([&] {
          if (ranks_.first() == of_first) open_data();
        });
        agree_to_stop();
        if (stops()) return stop_before_first_step();
        if (!ranks_.several()) break;
      }
      ranks_.together([&] { create_session(); });
      compare_ranks();
      align_traces();
    } catch (const Error& e) {
      if (e.code() == trainhost::Exit::kUsage) remove_new_files();
      throw;
    }
  } catch (const plugin::PluginError& e) {
    if (!ended_by_signal(e)) throw;
  }
  agree_to_stop();
  if (stops()) return stop_before_first_step();
  StopSignals::set_consequence("stopping with a checkpoint");  // after the current step
  ranks_.together([&] { open_metrics(); });
  ranks_.together([&] { observer_.begun(config_.output.dir, resumes_); });
  state_loss();
  // A signal may have ended the evaluation after which the checkpoint was written.
  if (first_step_ && evaluation_is_due()) evaluate();
  agree_to_stop();
  bool running = !stops();
  // A run that is resumed after its last step trains nothing and only writes the model.
  try {
    while (running && steps_done_ < config_.steps && !early_stopping_.stops()) running = train_step();
    if (running && source_.valid_samples && evaluated_after_ != steps_done_) evaluate();
    // The model is written from the session; the checkpoint before it survives a failure of that write.
    agree_to_stop();
    running = running && !stops();
    if (running && (config_.output.checkpoint_every || config_.output.checkpoint_minutes > 0))
      write_checkpoint();
    finish_save();
  } catch (const SharedError&) {
    checkpoint_after_failure();
    throw;
  } catch (const plugin::PluginError& e) {
    if (e.status() != "device_lost") checkpoint_after_own_failure();
    throw;
  } catch (const Error&) {
    checkpoint_after_own_failure();
    throw;
  }
  return running && finish() ? Exit::kDone : stop();
}

/// One optimizer step. Time is measured around the trainer only. Returns false after a signal; the step
/// itself is complete then, or has changed nothing.
bool TrainingRun::train_step() {
  const std::uint64_t step_index = steps_done_;
  const plugin::StepInput in = fill_batch(step_index);
  const plugin::Counters before = ranks_.several() ? session_->counters() : plugin::Counters{};
  const std::uint64_t start_ns = now_ns();
  plugin::StepResult r;
  try {
    r = compute_step(in);  // forward, backward and update: the trainer's kernels
  } catch (const plugin::PluginError& e) {
    // The trainer asks between operations whether a signal came.
    if (ended_by_signal(e)) return false;
    if (e.status() != "nonfinite") throw;
    if (config_.safety.on_nonfinite == runfile::Policy::kStop) {
      const std::string tensor = first_nonfinite_weight(*session_, config_);
      throw SharedError(e.code(),
                        fmt::format("step {}: {}; {}", step_index + 1, e.what(),
                                    tensor.empty() ? "all weights are finite"
                                                   : "the first weight that is not finite is " + tensor),
                        e.hint());
    }
    recover(config_.safety.on_nonfinite, "nonfinite", std::nullopt, e.what());
    agree_to_stop();
    return !stops();
  }
  const std::uint64_t end_ns = now_ns();
  if (config_.safety.on_spike != runfile::Policy::kIgnore && spikes_.is_spike(r.loss)) {
    recover(config_.safety.on_spike, "spike", r.loss,
            fmt::format("the loss {:.4f} is {:.1f} standard deviations above the mean of the last {}", r.loss,
                        spikes_.deviations(r.loss), config_.safety.spike_window));
    agree_to_stop();
    return !stops();
  }

  steps_done_ = step_index + 1;
  spikes_.add(r.loss);
  if (steps_done_ > failed_step_) failures_in_a_row_ = 0;
  const double seconds = static_cast<double>(end_ns - start_ns) * 1e-9;
  const std::uint64_t tokens = tokens_per_step();
  throughput_.add_step(tokens, seconds);
  agree_after_step(seconds * 1e3, before);
  if (profile_) profile_->step(steps_done_, start_ns, end_ns);
  events_->step({steps_done_, r.loss, r.grad_norm, in.lr, tokens, seconds * 1e3,
                 static_cast<double>(tokens) / seconds, registry_.ledger().in_use(plan_.compute_tier)},
                rank_times_.last());
  if (verified_) events_->verify(steps_done_, *verified_);
  report_step(steps_done_, config_.steps, r, in.lr);
  if (step_index == 0) question_first_loss(r.loss);
  end_step();
  return !stops();
}

/// One collective operation for all of it: on a network its latency counts more than its bytes.
void TrainingRun::agree_after_step(double step_ms, const plugin::Counters& before) {
  if (!ranks_.several()) return;
  const plugin::Counters now = session_->counters();
  const double wait_ms = static_cast<double>(now.communication_wait_ns - before.communication_wait_ns) * 1e-6;
  const bool writes =
      saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  const std::array<double, 5> own = {
      static_cast<double>(StopSignals::received()), step_ms - wait_ms, wait_ms,
      static_cast<double>(now.communication_bytes - before.communication_bytes), writes ? 1.0 : 0.0};
  const std::vector<double> all = ranks_.gather(own);
  std::vector<RankTime> times(ranks_.count());
  agreed_signal_ = 0;
  all_saved_ = saving_step_ != kNever;
  for (std::size_t r = 0; r < times.size(); ++r) {
    const double* const of_rank = &all[r * own.size()];
    agreed_signal_ = std::max(agreed_signal_, static_cast<int>(of_rank[0]));
    times[r] = {of_rank[1], of_rank[2], of_rank[3]};
    all_saved_ = all_saved_ && of_rank[4] == 0;
  }
  rank_times_.add(times);
}

/// Evaluates and writes a checkpoint where they are due. After the last step run() does both.
void TrainingRun::end_step() {
  const bool last = steps_done_ >= config_.steps;
  if ((last || checkpoint_is_due()) && roll_back_broken_weights()) return;
  if (!last && evaluation_is_due()) evaluate();
  if (!last && config_.output.sample_every && steps_done_ % config_.output.sample_every == 0)
    report_sample(steps_done_);
  if (!last && checkpoint_is_due()) start_save();
  if (is_saved()) finish_save();
  state_loss();
}

/// Pretrained weights with another tokenizer are trained without an error, and to no use.
void TrainingRun::question_first_loss(double loss) {
  const double guessing = std::log(static_cast<double>(config_.model.vocab));
  if (config_.weights && loss >= guessing)
    report(
        fmt::format("the first loss is not below {:.2f}, that of guessing among {} tokens: if the model is "
                    "pretrained, check that tokenizer and chat template are its own",
                    guessing, format_count(config_.model.vocab)));
}

/// Prepares the line that a second signal prints: what is saved and what is lost.
void TrainingRun::state_loss() {
  const std::uint64_t kept = checkpointed_after_ == kNever ? first_step_ : checkpointed_after_;
  assert(kept <= steps_done_);
  const std::string lost = plural(steps_done_ - kept, "step");
  if (steps_done_ == 0)
    StopSignals::set_result("nothing is lost: no step was computed");
  else if (kept == steps_done_)
    StopSignals::set_result(fmt::format("nothing is lost: the checkpoint of step {} is saved", kept));
  else if (kept == 0)
    StopSignals::set_result("no checkpoint was saved; lost: " + lost);
  else
    StopSignals::set_result(fmt::format(
        "the checkpoint of step {} is saved; lost: {} after it; continue with --resume", kept, lost));
}

/// The clocks of two machines have nothing in common. The ranks leave a collective operation at nearly the
/// same time, which becomes 0 in the trace.
void TrainingRun::align_traces() {
  if (!profile_ || !ranks_.several()) return;
  ranks_.largest(0);
  profile_->set_origin(now_ns());
}

/// Steps that remain, at the smoothed rate; checkpoints and evaluations are not included.
void TrainingRun::report_step(std::uint64_t step, std::uint64_t steps, const plugin::StepResult& r,
                              double lr) {
  const std::uint64_t tokens_left = (steps - step) * tokens_per_step();
  StepProgress progress;
  progress.step = step;
  progress.steps = steps;
  progress.loss = r.loss;
  progress.grad_norm = r.grad_norm;
  progress.lr = lr;
  progress.tokens_per_s = throughput_.tokens_per_s();
  progress.mfu = ranks_.first() ? throughput_.mfu(*session_, progress.tokens_per_s) : std::nullopt;
  progress.eta_s = static_cast<double>(tokens_left) / throughput_.tokens_per_s();
  if (ranks_.several()) {
    const RankTimes::Summary times = rank_times_.recent();
    progress.ranks = {ranks_.count(), times.wait_share, times.slowest, times.excess};
  }
  progress.memory_bytes = registry_.ledger().in_use(plan_.compute_tier);
  observer_.step(progress);
  Scalars norms;
  if (layer_norms_) norms = layer_norms_->measure(step, steps, *session_, ranks_);
  if (board_) board_->step(progress, std::move(norms));
}

namespace {

Exit run_to_end(TrainingRun& run) {
  try {
    return run.run();
  } catch (const plugin::PluginError& e) {
    if (e.status() != "device_lost") throw;
    return run.end_after_lost_device(e);
  }
}

}  // namespace

Exit train(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
           RunObserver& observer) {
  std::optional<TrainingRun> run;
  Ranks(o.ranks).together([&] { run.emplace(c, registry, o, observer); });
  try {
    const Exit code = run_to_end(*run);
    const bool done = code == Exit::kDone;
    run->note_end(done ? "finished" : "stopped", code, done ? "" : run->why_stopped());
    observer.ended();
    return code;
  } catch (const Error& e) {
    run->note_end("failed", e.code(), e.what());
    observer.ended();
    throw;
  }
}

}  // namespace trainhost::training
