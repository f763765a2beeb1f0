// A step program with its memory plan. Several callers of one command ask for those of the same run: the
// trainer that chooses its mode, the estimator, and the timeline.
#pragma once
#include <memory>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

struct PlacedRun {
  Program program;
  MemoryPlan plan;
};

/// build_program() and place(), or the result of an earlier call for the same run: the last few are kept. May
/// be called by several threads at the same time. Errors: those of the two functions.
std::shared_ptr<const PlacedRun> placed_run(const ModelSpec& model, const RunSpec& run,
                                            const TrainerTraits& traits);

}  // namespace trainhost::placement
