// A step program with its memory plan. Several calls in one binary ask for those of the same run. The program and
// each plugin that links this module keep their own; in the page of tools/web, which is one binary, trainer,
// estimator and timeline share them.
#pragma once
#include <memory>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

struct PlacedRun {
  Program program;
  MemoryPlan plan;
};

/// build_program() and place(), or the result of an earlier call for the same run: the last few are kept,
/// once per binary. May be called by several threads at the same time. Errors: those of the two functions.
std::shared_ptr<const PlacedRun> placed_run(const ModelSpec& model, const RunSpec& run,
                                            const TrainerTraits& traits);

}  // namespace trainhost::placement
