// What happened in a run besides plain steps: for the last event, for the user, and for the file beside the
// weights that says where they come from.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trainhost::training {

struct RunHistory {
  std::uint64_t skipped = 0, rollbacks = 0;  // by train.on_nonfinite and train.on_spike
  std::optional<std::uint64_t> best_step;    // of the lowest validation loss; with output.keep_best
  double best_loss = 0;
  // At the end of the run:
  std::uint64_t steps = 0;       // computed
  std::uint64_t model_step = 0;  // after which the weights of the result were saved
  bool stopped_early = false;    // by train.early_stopping
};

/// A file of model/ and adapter/ in the format of transformers' TrainerState: global_step is the step of the
/// weights, max_steps the last one that was computed, best_global_step and best_metric those of the lowest
/// validation loss, if the run kept it.
inline constexpr const char* kTrainerStateName = "trainer_state.json";
std::string trainer_state_json(const RunHistory& h);

}  // namespace trainhost::training
