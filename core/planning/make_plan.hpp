// Plans one run: the sequence of stages from a resolved run to a PlanResult. Each stage has a file of its
// own; README.md shows the whole path. Changes and limits are added by suggest_changes.hpp.
#pragma once
#include "core/planning/plan_result.hpp"
#include "core/planning/resolve_run.hpp"

namespace trainhost::planning {

/// Throws usage_error where no estimator plans the model family, an estimator is unknown, or a size exceeds
/// 63 bits.
PlanResult make_plan(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request);

}  // namespace trainhost::planning
