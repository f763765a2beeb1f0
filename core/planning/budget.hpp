// Memory budgets of a run: of the compute tier, and of host memory where that is another tier. Free memory
// varies, so it is read once per command and every plan of that command uses the same budgets.
#pragma once
#include <cstdint>
#include <string>

#include "core/planning/plan_result.hpp"
#include "core/plugin/plugin.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

struct Budget {
  std::uint64_t bytes = 0;
  std::string source;  // "memory.budget", "h100-80gb", "free memory", "free memory of NVIDIA H200"
  bool known = false;  // false: no source is available, so fit is not judged
};

struct Budgets {
  Tier tier = Tier::kHost;  // compute tier
  Budget compute;
  Budget host;  // pinned and pageable host memory of a device run; unknown where the compute tier is the host
  bool safe = false;  // plan.safe: reports are raised to their upper bounds before they are compared
};

/// Compute budget: memory.budget, else the memory of memory.device, else free memory of the trainer's device,
/// else free host memory. The trainer's runtime memory is subtracted from a device's memory, but not from
/// memory.budget, which covers the plan alone.
/// Host budget: memory.host_budget, else free host memory unless `elsewhere` (the run is for another
/// machine). `trainer`: null where none is installed. Throws usage_error for an unknown device.
Budgets find_budgets(const runfile::RunConfig& c, const TrainerTraits& traits, plugin::Trainer* trainer,
                     bool elsewhere);

/// Compares a report with the budgets: it fits if both the compute tier and host memory fit. With
/// budgets.safe the report of the estimate consists of upper bounds, with a note that gives the margin.
Estimate judge(MemoryReport r, const Budgets& budgets);

/// Which tier is too small, and by how much; "" where the estimate fits. `smallest`: the run already
/// recomputes everything.
std::string why_it_does_not_fit(const Estimate& e, const Budgets& budgets, bool smallest);

}  // namespace trainhost::planning
