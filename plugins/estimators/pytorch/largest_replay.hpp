// The rank of a run that decides whether it fits: its pipeline stage, and its part of a distributed
// optimizer.
#pragma once
#include <string>
#include <vector>

#include "core/model/run_spec.hpp"
#include "plugins/estimators/pytorch/replay.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {

/// The replay of the stage, and of its rank, that reserves the most. Adds to `notes` which stage it is. Where
/// only the verdict is asked for, the first one that exceeds the budget.
ReplayPointer largest_replay(const model::Architecture& architecture,
                             const frameworks::StepSettings& settings, const Options& options,
                             const RunSpec& run, std::vector<std::string>& notes);

}  // namespace trainhost::pytorch
