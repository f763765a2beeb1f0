// Memory against one key of the run file: the run is planned at every value, by every estimator that was
// asked for, and what overtakes what is narrowed down between the points. Values that make no run carry their
// reason; prints nothing.
#pragma once
#include <functional>

#include "core/planning/make_plan.hpp"
#include "core/planning/replan.hpp"
#include "core/planning/sweep_axis.hpp"
#include "core/report/sweep_view.hpp"

namespace trainhost::planning {

/// `request.trainer` is found anew for every point. Throws the first point's error where no point is a run.
report::SweepView sweep(const Source& source, const Axis& axis, const PlanRequest& request);

/// A fact about a plan that holds on one side of a crossover and not on the other: "activations outweigh the
/// model's state".
struct Predicate {
  std::string sentence;  // "activations outweigh weights, gradients and optimizer state"
  std::function<bool(const report::Estimate&)> holds;
};
/// Facts that hold at exactly one of two neighbouring points.
std::vector<Predicate> changed_facts(const report::Estimate& a, const report::Estimate& b, bool budget_known);

/// The first whole number in (low, high] where `holds` is what it is at `high`; it differs at `low`. Some
/// log2(high - low) calls.
std::uint64_t bisect(std::uint64_t low, std::uint64_t high, const std::function<bool(std::uint64_t)>& holds);

}  // namespace trainhost::planning
