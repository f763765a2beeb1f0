// See train.hpp and training_run.hpp. TrainingRun::run() states the order of events; the functions below it
// follow in that order.
#include "core/training/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cmath>
#include <system_error>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"
#include "core/training/adapter_files.hpp"
#include "core/training/memory_result.hpp"
#include "core/training/run_status.hpp"
#include "core/training/sample_tokens.hpp"
#include "core/training/training_run.hpp"

namespace trainhost::training {
namespace fs = std::filesystem;

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

bool TrainingRun::checkpoint_is_due() {
  const std::uint64_t every = config_.output.checkpoint_every;
  const double minutes = config_.output.checkpoint_minutes;
  return (every && steps_done_ % every == 0) ||
         // By the clock of one process, so that all of them agree.
         (minutes > 0 &&
          ranks_.of_first(std::uint64_t{static_cast<double>(now_ns() - checkpointed_ns_) >= minutes * 60e9}));
}

/// Returns when the checkpoint is on disk.
void TrainingRun::write_checkpoint() {
  start_save();
  finish_save();
}

/// At most one checkpoint per step, and one at a time. With output.async_checkpoints a second thread writes a
/// copy of the state while training goes on; without memory for a thread it is written here. Several ranks
/// write together, each its part.
void TrainingRun::start_save() {
  if (checkpointed_after_ == steps_done_ || saving_step_ == steps_done_) return;
  finish_save();
  Progress progress{steps_done_, batch_offset_, spikes_.text(), std::nullopt, source_.valid_content, ""};
  if (evaluated_after_ == steps_done_) progress.validation_loss = validation_loss_;
  if (early_stopping_.enabled()) progress.early_stopping = early_stopping_.text();
  const checkpoint::Meta meta =
      checkpoint_meta(*session_, config_, choice_.id, source_.content, progress, frozen_content_);
  checkpointed_ns_ = now_ns();
  const bool in_background =
      config_.output.async_checkpoints && (!ranks_.several() || planning::copies_own_part(config_));
  std::function<fs::path()> write;
  if (ranks_.several()) {
    shared_save_ = std::make_unique<SharedSave>(ranks_, *store_, meta, config_);
    if (in_background) copy_->take_own_part(*session_);
    write = [this, state = in_background ? copy_->own_part() : own_state_of(*session_, config_)] {
      shared_save_->write(state);
      return fs::path();
    };
  } else {
    if (in_background) copy_->take(*session_);
    const StateSource state = in_background ? [this](std::size_t scope) { return copy_->source(scope); }
                                            : state_of(*session_, config_);
    write = [this, meta, state] { return save_checkpoint(*store_, meta, config_, state); };
  }
  saving_step_ = steps_done_, all_saved_ = false;
  try {
    saving_ = std::async(in_background ? std::launch::async : std::launch::deferred, write);
  } catch (const std::system_error&) {
    saving_ = std::async(std::launch::deferred, write);
  }
  if (!in_background) finish_save();
}

void TrainingRun::finish_save() {
  if (!saving_.valid()) return;
  const std::uint64_t step = std::exchange(saving_step_, kNever);
  fs::path dir = saving_.get();
  if (const std::unique_ptr<SharedSave> shared = std::move(shared_save_)) dir = shared->finish();
  saved(step, dir);
}

/// Whether a checkpoint in the background can be published. Several ranks have agreed on it after the step.
bool TrainingRun::is_saved() const {
  return saving_.valid() &&
         (ranks_.several() ? all_saved_
                           : saving_.wait_for(std::chrono::seconds(0)) != std::future_status::timeout);
}

void TrainingRun::saved(std::uint64_t step, const fs::path& dir) {
  checkpointed_after_ = step;
  skipped_.erase(skipped_.begin(), skipped_.lower_bound(step));
  if (!ranks_.first()) return;
  if (history_.best_step == step) store_->mark_best(step);
  events_->checkpoint(step, dir);
  report("wrote checkpoint " + escaped(dir.string(), 4096));
}

/// Writes the model and summary.json, and compares predicted with measured memory. The memory result is read
/// after the model was written, since writing is part of the predicted peak. summary.json is
/// last: its presence means that the model is complete.
bool TrainingRun::finish() {
  observer_.steps_ended();
  agree_to_stop();
  if (stops()) return false;  // the model is not written; stop() writes a checkpoint instead
  const bool adapts = trains_adapters(config_.run);
  const fs::path model = config_.output.dir / (adapts ? "adapter" : "model");
  history_.steps = steps_done_;
  history_.model_step = load_weights_of_model();
  history_.stopped_early = early_stopping_.stops() && steps_done_ < config_.steps;
  if (!adapts)
    write_model(*session_, config_, model, history_, ranks_);
  else if (ranks_.first())
    write_adapter(*session_, config_, frozen_content_, model, history_);
  else if (config_.run.parallel.zero > 0 || divides_weights(config_.run.parallel))
    // Rank 0 writes the adapters, and the others send their parts.
    stream_adapter(*session_, config_, [](std::string_view, std::uint64_t, std::span<const float>) {});
  const MemoryResult memory = memory_result(trainer_plan_, registry_.ledger());
  const plugin::Counters counters = session_->counters();
  const std::string recompute = plan_.recompute_layers ? observer_.recompute_json(plan_) : "";
  const RunSpeed speed = {
      throughput_.mean_tokens_per_s(), utilization(counters),
      ranks_.first() ? throughput_.mfu(*session_, throughput_.mean_tokens_per_s()) : std::nullopt};
  const std::string done = events_->done(steps_done_, memory, counters, speed, rank_times_.total(), history_,
                                         recompute, finish_profile());
  if (ranks_.first()) checkpoint::write_file_atomically(config_.output.dir / "summary.json", done + "\n");
  observer_.measured(memory);
  // The plan that was printed is that of the first process.
  const bool differs = memory.predicted_bytes != memory.measured_bytes;
  const std::int32_t rank = ranks_.largest(differs ? static_cast<std::int32_t>(ranks_.rank()) : 0);
  if (rank > 0) report(fmt::format("the memory that rank {} has used is not the one of its plan", rank));
  if (ranks_.of_first(std::uint64_t{!options_.quiet}) || config_.output.sample_every)
    report_sample(history_.model_step);
  const std::uint64_t steps = steps_done_ - first_step_, tokens = steps * tokens_per_step();
  if (throughput_.seconds() > 0)
    report(fmt::format("trained {}, {} in {} ({} tokens/s{}); wrote the {} to {}", plural(steps, "step"),
                       plural(tokens, "token"), format_duration(throughput_.seconds()),
                       format_rate(speed.tokens_per_s),
                       speed.mfu ? fmt::format(", MFU {:.0f} %", 100 * *speed.mfu) : "",
                       adapts ? "adapters" : "model", escaped(model.string(), 4096)));
  if (history_.skipped || history_.rollbacks)
    report(fmt::format("skipped {} and returned {} to a checkpoint, see metrics.jsonl",
                       plural(history_.skipped, "update"), plural(history_.rollbacks, "time")));
  if (history_.best_step) report_best(adapts ? "adapter/" : "model/");
  return true;
}

/// Generates text with the weights of the session. No failure here may fail the run. With data.seq_len = 1
/// there is no context for a token.
void TrainingRun::report_sample(std::uint64_t step) try {
  // Where no rank has all weights, a token needs those of all ranks.
  if (!ranks_.first() && !divides_weights(config_.run.parallel)) return;
  if (const auto text = sample_of_trained_model(*session_, *tokenizer_, source_, config_.model, config_.run,
                                                staging_->as<float>().first(config_.model.vocab))) {
    observer_.sample(step, *text);
    if (board_) board_->text(steps_done_, "sample", *text);
  }
} catch (const Error& e) {
  report(std::string("no sample of generated text: ") + e.what());
}

/// Ends the run after a signal that came while data or weights were read.
Exit TrainingRun::stop_before_first_step() {
  report(fmt::format("stopped by {} before a step was computed; the same command starts again",
                     StopSignals::name(stop_signal())));
  return Exit::kStopped;
}

/// Ends the run after a signal, with a checkpoint to resume from.
Exit TrainingRun::stop() {
  observer_.steps_ended();
  write_checkpoint();
  finish_profile();
  why_stopped_ = fmt::format("stopped by {} after step {}", StopSignals::name(stop_signal()), steps_done_);
  report(why_stopped_ + "; continue with --resume");
  return Exit::kStopped;
}

/// A step that failed on all ranks has changed no weight, so the state after the last complete step can be
/// saved, unless that has overflowed already and could not be resumed. The failure of the step is what is
/// reported, whatever happens here.
void TrainingRun::checkpoint_after_failure() {
  observer_.steps_ended();
  if (steps_done_ == first_step_) return;
  try {
    if (first_nonfinite_weight(*session_, config_).empty()) write_checkpoint();
  } catch (const std::exception&) {
  }
}

/// With several ranks the others go on while this one fails: they do not send their part of the state, and
/// the step may have failed after the update, when weights were gathered. The last checkpoint remains.
void TrainingRun::checkpoint_after_own_failure() {
  if (ranks_.several()) return observer_.steps_ended();
  checkpoint_after_failure();
}

/// The clocks of two machines have nothing in common. The ranks leave a collective operation at nearly the
/// same time, which becomes 0 in the trace.
void TrainingRun::align_traces() {
  if (!profile_ || !ranks_.several()) return;
  ranks_.largest(0);
  profile_->set_origin(now_ns());
}

/// Ends the profile before the session does, because it refers to the session.
std::string TrainingRun::finish_profile() {
  if (!profile_) return {};
  ProfileResult result = profile_->finish(trainer_plan_);
  for (std::uint32_t r = 1; r < ranks_.count(); ++r) {
    const std::string trace = ranks_.of_rank(r, ranks_.rank() == r ? profile_->take_trace() : "");
    if (ranks_.first()) profile_->append(trace);
  }
  if (ranks_.first()) profile_->publish();
  profile_.reset();
  const double steps = static_cast<double>(std::max<std::uint64_t>(1, steps_done_ - first_step_));
  for (const RankTime& t : rank_times_.total())
    result.ranks.push_back({t.compute_ms / steps, t.wait_ms / steps, t.bytes / steps});
  observer_.profiled(result);
  return observer_.profile_json(result);
}

/// Time in which the device computed, as a share of the time of the steps; 1 for a trainer in host memory.
double TrainingRun::utilization(const plugin::Counters& n) const {
  if (plan_.compute_tier == Tier::kHost || throughput_.seconds() <= 0) return 1.0;
  return std::min(1.0, static_cast<double>(n.compute_ns) * 1e-9 / throughput_.seconds());
}

/// Status device_lost: the driver rejects all further calls, so the session must not be used, not even to
/// save. Only what is on disk can be reported.
Exit TrainingRun::end_after_lost_device(const plugin::PluginError& e) {
  observer_.steps_ended();
  std::string why;
  std::optional<checkpoint::Store::Found> found;
  try {  // a new Store reads the checkpoints from disk and verifies them
    found = checkpoint::Store(config_.output.dir / "checkpoints", config_.output.keep).newest();
  } catch (const Error& none) {
    why = none.what();
  }
  if (!found)
    throw Error(Exit::kFailed,
                fmt::format("{}; no checkpoint to resume from{}", e.what(), why.empty() ? "" : ": " + why),
                e.hint());
  const std::string text = fmt::format("{} ({}); the checkpoint {} is intact: continue with --resume",
                                       e.what(), e.hint(), found->dir.string());
  write_stderr("trainhost: " + escaped(text, 4096) + "\n");  // printed under -q too: it is why the run ended
  why_stopped_ = e.what();
  if (events_) events_->note(text, e.native());
  return Exit::kStopped;
}

void TrainingRun::note_end(const std::string& state, Exit code, const std::string& reason) noexcept {
  if (!begun_ || !ranks_.first()) return;
  try {
    if (board_) board_->end(code == Exit::kDone);
    write_ended(config_.output.dir, state, code, reason);
  } catch (const std::exception&) {  // the disk may be full; the end itself is reported anyway
  }
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
