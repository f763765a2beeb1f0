// Finds the largest micro-batch, the longest sequence and the fewest devices with which a run fits, and which
// component exceeds memory one step beyond. Plans the run about eight times per quantity: memory grows almost
// linearly, so the search interpolates.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/planning/plan_result.hpp"
#include "core/planning/replan.hpp"

namespace trainhost::planning {

struct LargestFit {
  std::uint64_t value = 0;             // 0: not even 1 fits
  std::optional<Estimate> at, beyond;  // the plans at `value` and at `value` + 1, where they were made
};

/// The largest x in [1, most] for which plan(x) fits; assumes that every smaller x fits too. nullopt from
/// plan(x): not a valid run, counted as not fitting. `budget_bytes` is used to interpolate only.
LargestFit largest_that_fits(std::uint64_t most, std::uint64_t budget_bytes,
                             const std::function<std::optional<Estimate>(std::uint64_t)>& plan);

/// The largest entry of the compute tier that is larger in `beyond` than in `fits` (null: the largest entry):
/// "activations: layers[].gate_up, 12.3 GiB".
std::string exceeding_component(const Estimate* fits, const Estimate& beyond, Tier compute_tier);

/// Micro-batch, sequence length, and devices (a power of two, split into tensor, ZeRO 3 data and pipeline
/// parallelism as far as an estimator plans them). Empty where there is no budget.
std::vector<Limit> find_limits(Replanner& replan);

}  // namespace trainhost::planning
