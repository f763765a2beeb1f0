// What of the compute tier is alive at the moments of one step, by component: from the step program where the
// estimate was made from one (the same program, by its digest), else from the phases of the estimate's
// leaves.
#pragma once
#include <vector>

#include "core/report/plan_view.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// In the order of a step. The largest moment of a closed form is the estimate's own; of a program it is too,
/// where the peak falls into training (not into evaluation or generation).
std::vector<report::Moment> step_timeline(const runfile::RunConfig& c, const TrainerTraits& traits,
                                          const report::Estimate& e);

}  // namespace trainhost::planning
