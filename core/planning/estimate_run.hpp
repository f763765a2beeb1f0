// Third stage of planning: one memory breakdown of a resolved run, from an estimator or from the trainer
// itself, with the host's own buffers added, compared with the budgets. Next stage: describe_plan.hpp.
#pragma once
#include <cstdint>
#include <string>

#include "core/planning/plan_result.hpp"
#include "core/planning/resolve_run.hpp"

namespace trainhost::planning {

/// True if the manifest of the trainer lists the kind of adapters of the run, "lora" or "qlora", and "dora"
/// if they have magnitudes, among its modes.
bool can_train_adapters(const plugin::Registry& registry, const std::string& trainer, const RunSpec& run);

/// The trainer that the run is planned for; null where none is installed or none trains this model and run.
plugin::Trainer* trainer_for(const runfile::RunConfig& c, plugin::Registry& registry,
                             const PlanRequest& request);

/// The traits of the trainer that estimators receive. Without a trainer: every buffer on the device.
TrainerTraits traits_for(const runfile::RunConfig& c, plugin::Trainer* trainer);
TrainerTraits planned_traits(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request);

/// The breakdown of estimator `id`. The host's buffers are added if it is exact.
Estimate estimate_run(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request,
                      const std::string& id, const TrainerTraits& traits);

/// The trainer's own plan plus the host's buffers. Training compares its measured memory with it.
Estimate estimate_by_trainer(const ResolvedRun& r, plugin::Trainer& trainer, bool profiled = false);

}  // namespace trainhost::planning
