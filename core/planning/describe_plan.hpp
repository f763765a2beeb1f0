// Last stage of planning: everything in a PlanResult except the estimates: model, run line, budgets, notes.
#pragma once
#include <string>

#include "core/planning/plan_result.hpp"
#include "core/planning/resolve_run.hpp"

namespace trainhost::planning {

/// A PlanResult without estimates. `traits`: of the trainer that the run is planned for; they describe the
/// run if `decides`, the report of the first estimator, is exact. Any other estimator knows nothing of the
/// trainer's mode and its recomputation.
PlanResult describe_plan(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request,
                         const TrainerTraits& traits, const MemoryReport& decides);

/// "f32, 8 sequences of 128 tokens x 4 accumulated, adamw, RECOMPUTE"; "" leaves the last part out.
std::string describe_run(const runfile::RunConfig& c, const std::string& recompute);

/// ", QLoRA of rank 8", ", LoRA of ranks 2 to 16"; "" where no adapters are trained.
std::string describe_adapters(const ModelSpec& m, const RunSpec& r);

/// "recompute none", "recompute auto: layers 0-3 full, layers 4-11 selective"; the policy of the trainer's
/// mode where the run file sets none; "" for inference.
std::string describe_recompute(const runfile::RunConfig& c, const TrainerTraits& traits);

}  // namespace trainhost::planning
