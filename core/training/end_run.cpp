// How a run ends: finish() writes the model and compares predicted with measured memory; stop() and the
// functions below it end a run after a signal, a failed step or a lost device. See training_run.hpp.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"
#include "core/training/adapter_files.hpp"
#include "core/training/memory_result.hpp"
#include "core/training/run_status.hpp"
#include "core/training/sample_tokens.hpp"
#include "core/training/training_run.hpp"
#include "core/training/write_model.hpp"

namespace trainhost::training {
namespace fs = std::filesystem;

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

}  // namespace trainhost::training
