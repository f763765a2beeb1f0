// How far a run can go: the most of one number with which it fits, and what takes the room at the next. Found
// by planning the run again, some eight times a number: memory is nearly a straight line in each of them, so
// the search guesses along it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/planning/replan.hpp"
#include "core/report/plan_view.hpp"

namespace trainhost::planning {

/// The largest x in [1, most] for which plan(x) fits `budget_bytes`, taken to hold for every smaller x. 0:
/// not even 1 does. `least_not`: the plan at the answer + 1, when it was made. nullopt from plan(x): no run,
/// taken not to fit.
struct Most {
  std::uint64_t value = 0;
  std::optional<report::Estimate> at, beyond;  // at value; at value + 1
};
Most largest_that_fits(std::uint64_t most, std::uint64_t budget_bytes,
                       const std::function<std::optional<report::Estimate>(std::uint64_t)>& plan);

/// The largest leaf of the compute tier that grew from `fits` to `beyond`: "activations:
/// layers[].gate_up, 12.3 GiB". Without `fits`: the largest leaf.
std::string what_binds(const report::Estimate* fits, const report::Estimate& beyond, Tier compute_tier);

/// Largest micro-batch, longest sequence, fewest devices (a power of two, shared by tensor, data with ZeRO 3
/// and pipeline parallelism, where an estimator plans them). Nothing where there is no budget.
std::vector<report::Limit> find_limits(Replanner& replan);

}  // namespace trainhost::planning
