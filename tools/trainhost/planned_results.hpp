// The results of the commands that plan, computed from their arguments: the commands print them, the Python
// module (sdk/python) returns them. Read no training data, as documented with the commands.
#pragma once
#include "core/planning/plan_result.hpp"
#include "core/planning/search_result.hpp"
#include "core/planning/sweep_result.hpp"
#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

/// `plan`. The timeline is computed for --json and --html, limits for --limits and --html.
planning::PlanResult plan_of(const PlanArguments& a);

/// `sweep`. Throws usage_error if the key of --over is set as well.
planning::SweepResult sweep_of(const SweepArguments& a);

/// `search`.
planning::SearchResult search_of(const SearchArguments& a);

}  // namespace trainhost::cli
