// The answers for an ordinary PyTorch run, next to a plan for trainhost's own trainer: most people who ask
// whether a model fits train with PyTorch.
#pragma once
#include "core/planning/plan_result.hpp"
#include "core/planning/replan.hpp"
#include "core/planning/resolve_run.hpp"

namespace trainhost::planning {

/// Plans the run `c` as a step of PyTorch, without and with recomputation of every layer, and adds both to
/// `v`; where the run is not described, adds the reason. Where neither fits, adds what people try next: the
/// weights sharded by FSDP2 (several devices), adapters of rank 16 on every matrix of the layers (LoRA; with
/// experts those of attention), and the same on weights in 4 bits (QLoRA), each with recomputation, up to the
/// first that fits. `source` loads these variations of `c`; those that it refuses are left out. Adds nothing
/// for inference, for a device that PyTorch's CUDA allocator does not serve, and where no estimator of
/// PyTorch is installed.
void add_framework_answers(PlanResult& v, const runfile::RunConfig& c, const RunSource& source,
                           plugin::Registry& registry);

}  // namespace trainhost::planning
