// What a TrainingRun does when a step fails numerically (train.on_nonfinite, train.on_spike) and how it
// verifies a step (train.verify_every).
//
// One mechanism serves skip, rollback and stop: return to the last checkpoint, or to the initial state, and
// compute steps again. A step is a function of the state and of its index, so repeated steps give the same
// bits and need no copy of the state. A step that is not finite has changed nothing and is skipped without
// that. A spike is known only after its update, so the steps since the checkpoint are computed again to skip
// it; spikes are rare.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>

#include "core/base/text.hpp"
#include "core/training/training_run.hpp"

namespace trainhost::training {
namespace {

/// More failures than this without a good step in between are not bad luck: the weights are broken.
constexpr unsigned kMostFailuresInARow = 10;

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

/// Shape of the buffer [2 or 3, tokens_per_step]: tokens, targets shifted by one, and where several documents
/// share a sequence their starts. Filled from the index and the offset alone, so a resumed run reads the same
/// data.
plugin::StepInput TrainingRun::fill_batch(std::uint64_t step_index) {
  const std::span<std::int32_t> ids = batch_->as<std::int32_t>();
  const std::uint64_t tokens = config_.run.tokens_per_step();
  assert(ids.size() == planning::ids_per_token(config_.run) * tokens);
  const std::span<std::int32_t> starts = ids.subspan(2 * tokens);  // empty without documents
  batches_->fill(step_index + batch_offset_, ids.first(tokens), ids.subspan(tokens, tokens), starts);
  plugin::StepInput in;
  in.starts = starts;
  in.tokens = ids.first(tokens);
  in.targets = ids.subspan(tokens, tokens);
  in.batch = config_.run.accumulate * config_.run.micro_batch;
  in.seq = config_.run.seq_len;
  in.lr = runfile::lr_at(config_.optimizer, step_index, config_.steps);
  in.step_index = step_index;
  return in;
}

plugin::StepResult TrainingRun::compute_step(const plugin::StepInput& in) {
  verified_.reset();
  const std::uint64_t every = config_.safety.verify_every;
  return every && (in.step_index + 1) % every == 0 ? compute_twice(in) : session_->step(in);
}

/// Computes the step, returns to the state before it, computes it again and compares every tensor. After a
/// difference, or if the second step does not end, the session has the state before the step.
plugin::StepResult TrainingRun::compute_twice(const plugin::StepInput& in) {
  finish_save();  // the copy may still be written to a checkpoint
  copy_->take(*session_);
  const plugin::StepResult first = session_->step(in);
  const StateHash expected = hash_state(*session_, config_);
  copy_->restore(*session_);
  std::string difference;
  try {
    const plugin::StepResult second = session_->step(in);
    difference = hash_state(*session_, config_).first_difference(expected);
    if (difference.empty() &&
        !(same_bits(first.loss, second.loss) && same_bits(first.grad_norm, second.grad_norm)))
      difference = "loss or gradient norm";
  } catch (const plugin::PluginError& e) {
    if (e.status() != "device_lost") copy_->restore(*session_);
    if (e.status() != "nonfinite") throw;
    difference = "loss or gradient norm";
  }
  if (!difference.empty()) {
    copy_->restore(*session_);
    throw run_error(
        fmt::format("step {} was computed twice with different results; the first difference is in: {}",
                    in.step_index + 1, difference),
        "the processor or the memory of this machine is faulty: continue on another machine with --resume");
  }
  verified_ = expected.weights;
  return first;
}

void TrainingRun::recover(runfile::Policy policy, const char* reason, std::optional<double> loss,
                          const std::string& what) {
  const std::uint64_t failed = steps_done_, offset = batch_offset_;
  failed_step_ = std::max(failed_step_, failed + 1);
  if (++failures_in_a_row_ > kMostFailuresInARow)
    throw SharedError(
        Exit::kFailed,
        fmt::format("step {}: {}; {} steps in a row have failed", failed + 1, what, failures_in_a_row_),
        "use a smaller optimizer.lr, or resume from an earlier checkpoint");
  const bool updated = loss.has_value();  // the failure was found after the update
  switch (policy) {
    case runfile::Policy::kStop:
      if (updated && !return_to_step(failed)) return;
      throw SharedError(Exit::kFailed, fmt::format("step {}: {}", failed + 1, what),
                        fmt::format("the state before the step is kept; --resume with --set "
                                    "train.on_{}=skip leaves the step out",
                                    reason));
    case runfile::Policy::kSkip:
      if (updated && !return_to_step(failed)) return;
      skipped_.insert(failed);
      steps_done_ = failed + 1;
      ++history_.skipped;
      events_->skip(steps_done_, reason, loss);
      report(fmt::format("step {}: {}; its update was skipped", steps_done_, what));
      return end_step();
    case runfile::Policy::kRollback: {
      const std::uint64_t to = return_to_checkpoint();
      batch_offset_ = failed + 1 + offset - to;  // the batch after the one that failed
      skipped_.clear();
      ++history_.rollbacks;
      events_->rollback(to, failed + 1, reason, batch_offset_);
      if (board_) board_->rollback(to);
      report(fmt::format("step {}: {}; returned to step {}, the next batch is {}", failed + 1, what, to,
                         to + batch_offset_ + 1));
      return state_loss();
    }
    case runfile::Policy::kIgnore:
      break;
  }
  assert(!"ignored failures are not recovered from");
}

/// A weight that is not finite need not reach the loss (the embedding of a token that does not occur), but
/// its state cannot be saved. Called before a checkpoint. Without train.on_nonfinite = "rollback" writing it
/// ends the run.
bool TrainingRun::roll_back_broken_weights() {
  if (config_.safety.on_nonfinite != runfile::Policy::kRollback) return false;
  const std::string tensor = first_nonfinite_weight(*session_, config_);
  if (tensor.empty()) return false;
  --steps_done_;  // the step that failed is the last one
  recover(runfile::Policy::kRollback, "nonfinite", std::nullopt, tensor + " is not finite after it");
  return true;
}

/// One session at a time: the plan has memory for one. Returns the step of the state.
std::uint64_t TrainingRun::return_to_checkpoint() {
  finish_save();
  session_.reset();
  start_session(checkpointed_after_ != kNever, [](const std::string&) {});
  // An older one, if the newest is damaged by now.
  if (checkpointed_after_ != kNever) checkpointed_after_ = steps_done_;
  if (evaluated_after_ != kNever && evaluated_after_ > steps_done_) evaluated_after_ = kNever;
  return steps_done_;
}

/// The steps between were evaluated when they were computed first, so what follows from that is kept.
bool TrainingRun::return_to_step(std::uint64_t step) {
  const EarlyStopping evaluated = early_stopping_;
  return_to_checkpoint();
  early_stopping_ = evaluated;
  return repeat_steps(step);
}

/// The events of these steps were written when they were computed first.
bool TrainingRun::repeat_steps(std::uint64_t until) {
  if (steps_done_ < until) report(fmt::format("computing steps {} to {} again", steps_done_ + 1, until));
  for (; steps_done_ < until; ++steps_done_) {
    agree_to_stop();
    if (stops()) return false;
    if (skipped_.count(steps_done_)) continue;
    try {
      spikes_.add(session_->step(fill_batch(steps_done_)).loss);
    } catch (const plugin::PluginError& e) {
      if (ended_by_signal(e)) return false;
      throw;
    }
  }
  return true;
}

}  // namespace trainhost::training
