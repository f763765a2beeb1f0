// The answers for an ordinary PyTorch run, next to a plan for trainhost's own trainer: most people who ask
// whether a model fits train with PyTorch.
#pragma once
#include "core/planning/plan_result.hpp"
#include "core/planning/resolve_run.hpp"

namespace trainhost::planning {

/// Plans the run `c` as a step of PyTorch, without and with recomputation of every layer, and adds both to
/// `v`; where the run is not described, adds the reason. Adds nothing for inference, for a device that
/// PyTorch's CUDA allocator does not serve, and where no estimator of PyTorch is installed.
void add_framework_answers(PlanResult& v, const runfile::RunConfig& c, plugin::Registry& registry);

}  // namespace trainhost::planning
