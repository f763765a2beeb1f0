// `train --find-lr`: the run up to its first step, then the steps of a range test in place of its own. The
// trained state is discarded. Members of TrainingRun; which rate the losses suggest is in lr_range.cpp.
#include <fmt/format.h>

#include "core/training/adapter_files.hpp"
#include "core/training/train.hpp"
#include "core/training/training_run.hpp"

namespace trainhost::training {

/// The folder of the run gets the cache of tokenized text, if there is any. It is locked while the test runs,
/// so that a test and a run do not remove each other's new files.
std::optional<LrRangeResult> TrainingRun::find_lr(const LrRange& range) {
  plan();
  if (config_.adapter) require_adapter(config_);
  StopSignals signals;
  StopSignals::set_consequence("ending the range test");
  StopSignals::set_result("nothing is lost: a range test keeps no weights");
  note_new_files(config_.output.dir);
  try {
    try {
      lock_.emplace(config_.output.dir);
      open_data();
      LrRangeResult result{range, {}, RangeEnd::kComplete, {}};
      if (!StopSignals::received()) {
        create_session();
        report(fmt::format(
            "range test: {} steps with learning rates from {:g} to {:g}; its weights are discarded",
            range.steps, range.from, range.to));
        compute_range(result);
        observer_.steps_ended();
      }
      if (!StopSignals::received()) {
        result.suggestion = suggest_lr(range, result.points, result.end);
        return result;
      }
    } catch (const Error& e) {
      observer_.steps_ended();
      remove_new_files();
      throw;
    }
  } catch (const plugin::PluginError& e) {
    if (!ended_by_signal(e)) throw;
  }
  remove_new_files();
  report(fmt::format("range test stopped by {}; nothing was written",
                     StopSignals::name(StopSignals::received())));
  return std::nullopt;
}

/// Steps have the batches of the run from its first one. What a run does about losses that are not finite,
/// spikes and faulty hardware does not apply: the test is meant to reach the first two.
void TrainingRun::compute_range(LrRangeResult& result) {
  std::vector<double> losses;
  for (std::uint64_t step = 0; step < result.range.steps && !StopSignals::received(); ++step) {
    plugin::StepInput in = fill_batch(step);
    in.lr = result.range.rate(step);
    const std::uint64_t start_ns = now_ns();
    plugin::StepResult r;
    try {
      r = session_->step(in);
    } catch (const plugin::PluginError& e) {
      if (e.status() != "nonfinite") throw;
      result.end = RangeEnd::kNonfinite;
      return;
    }
    const double seconds = static_cast<double>(now_ns() - start_ns) * 1e-9;
    throughput_.add_step(config_.run.tokens_per_step(), seconds);
    result.points.push_back({in.lr, r.loss, r.grad_norm});
    losses.push_back(r.loss);
    if (step == 0) question_first_loss(r.loss);
    report_step(step + 1, result.range.steps, r, in.lr);
    if (has_diverged(losses)) {
      result.end = RangeEnd::kDiverged;
      return;
    }
  }
}

std::optional<LrRangeResult> find_lr(const runfile::RunConfig& c, plugin::Registry& registry,
                                     const TrainOptions& o, const LrRange& range, RunObserver& observer) {
  return TrainingRun(c, registry, o, observer).find_lr(range);
}

}  // namespace trainhost::training
