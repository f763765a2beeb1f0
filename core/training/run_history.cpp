// See run_history.hpp.
#include "core/training/run_history.hpp"

#include "core/base/json_value.hpp"

namespace trainhost::training {

std::string trainer_state_json(const RunHistory& h) {
  JsonValue j = {{"global_step", h.model_step}, {"max_steps", h.steps}};
  if (h.best_step) j["best_global_step"] = *h.best_step, j["best_metric"] = h.best_loss;
  return j.dump(2) + "\n";
}

}  // namespace trainhost::training
