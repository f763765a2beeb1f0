// Plans a run at every value of one run-file key with every requested estimator, and locates the crossovers
// between the points. A value that makes no valid run carries the reason. Prints nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/planning/replan.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/planning/sweep_axis.hpp"
#include "core/planning/sweep_result.hpp"

namespace trainhost::planning {

/// `request.trainer` is ignored: it is chosen for every point. Throws the first error where no point is a
/// valid run.
SweepResult sweep(const RunSource& source, const Axis& axis, const PlanRequest& request);

/// A fact about a plan that changes at a crossover.
struct Predicate {
  std::string sentence;  // "activations exceed weights, gradients and optimizer state"
  std::function<bool(const Estimate&)> holds;
};
/// Facts that hold at exactly one of two neighbouring points. Defined in crossovers.cpp.
std::vector<Predicate> changed_facts(const Estimate& a, const Estimate& b, bool budget_known);

/// The smallest n in (low, high] with holds(n) == holds(high), given holds(low) != holds(high). About
/// log2(high - low) calls.
std::uint64_t bisect(std::uint64_t low, std::uint64_t high, const std::function<bool(std::uint64_t)>& holds);

}  // namespace trainhost::planning
