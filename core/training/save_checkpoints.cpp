// When checkpoints of a run are due, and their writing, in the background where memory for a copy was
// planned. See training_run.hpp; the files are those of model_state.hpp.
#include <chrono>
#include <system_error>

#include "core/base/text.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/training/training_run.hpp"

namespace trainhost::training {
namespace fs = std::filesystem;

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

}  // namespace trainhost::training
