// Live bytes of the compute tier through one training step, by component. Computed from the step program
// where the estimate has the same digest, otherwise from the phases of the estimate's entries.
#pragma once
#include <vector>

#include "core/planning/plan_result.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// In the order of a step. The largest phase equals the peak of the estimate, except where the peak of a
/// program occurs in evaluation or generation.
std::vector<StepPhase> step_timeline(const runfile::RunConfig& c, const TrainerTraits& traits,
                                     const Estimate& e);

/// At most `most` phases, in order: each stands for a group of neighbours and is the largest of them, so the
/// peak is always among them.
std::vector<StepPhase> largest_phases(const std::vector<StepPhase>& all, std::size_t most);

}  // namespace trainhost::planning
