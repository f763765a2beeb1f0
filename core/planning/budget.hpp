// How much memory a run may take: of the compute tier, and of the host where that is another tier. Free
// memory changes from one look to the next, so a command looks once and everything after it is judged by the
// same numbers.
#pragma once
#include <cstdint>
#include <string>

#include "core/plugin/plugin.hpp"
#include "core/report/plan_view.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

struct Budget {
  std::uint64_t bytes = 0;
  std::string source;  // "memory.budget", "h100-80gb", "free memory", "free memory of NVIDIA H200"
  bool known = false;  // false: nobody here can say, so nothing is judged
};

struct Budgets {
  Tier tier = Tier::kHost;  // the compute tier, which `compute` is for
  Budget compute;
  Budget host;  // for what a device run holds in host memory, pinned or not; unknown where the compute tier
                // is the host
};

/// compute: memory.budget, else the preset's memory, else what is free on the trainer's device, else on the
/// host. `trainer`: null where none is installed for the run. `elsewhere`: the run is planned for another
/// machine, whose host memory is only what memory.host_budget says. Throws usage_error for an unknown device,
/// with the nearest name. `traits`: the trainer's for this run: its tier, and what its runtime takes of a
/// device beside the plan, which is left out of a device's memory (not of memory.budget, which is the plan's
/// own).
Budgets find_budgets(const runfile::RunConfig& c, const TrainerTraits& traits, plugin::Trainer* trainer,
                     bool elsewhere);

/// A report held against the budgets: it fits where both the compute tier and the host do.
report::Estimate judge(MemoryReport r, const Budgets& budgets);

/// Which tier has too little, and by how much; "" where the estimate fits. `smallest`: said of a run that
/// cannot shrink.
std::string why_it_does_not_fit(const report::Estimate& e, const Budgets& budgets, bool smallest);

}  // namespace trainhost::planning
