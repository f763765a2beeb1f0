// Will it fit: the estimates of one run, the host's own buffers added, judged against the budget.
#pragma once
#include <string>
#include <vector>

#include "core/planning/budget.hpp"
#include "core/plugin/registry.hpp"
#include "core/report/plan_view.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

struct PlanRequest {
  std::vector<std::string> estimators;  // empty: what the run file says; "auto", "all" or ids
  std::string trainer;     // id of the trainer to plan for; "" = none (a device nobody here can drive)
  bool profiled = false;   // under --profile: the records of a step are held too
  bool elsewhere = false;  // for another machine: this one's host memory says nothing
};

/// A run with nothing left open. `config.run` has the budgets that were found, so that a trainer can choose
/// by them.
struct Resolved {
  runfile::RunConfig config;
  Budgets budgets;
};

/// Looks at free memory, once, and makes train.recompute = "auto" into what each layer does: the least that
/// fits, by the plan of the trainer that is asked for, or of the first estimator where there is none.
Resolved resolve(const runfile::RunConfig& c, plugin::Registry& registry, const PlanRequest& request);

/// Throws usage_error when a family is refused by every estimator, or an estimator is unknown.
report::PlanView make_plan(const Resolved& r, plugin::Registry& registry, const PlanRequest& request);

/// What estimators are asked with: the traits of the trainer that the run is planned for; where there is
/// none, every buffer on the device.
TrainerTraits planned_traits(const Resolved& r, plugin::Registry& registry, const PlanRequest& request);

/// One line for each estimator and each refused file: how well it fits, or why it was not asked. For -v.
std::string estimator_trace(const runfile::RunConfig& c, plugin::Registry& registry);

/// Ids of the estimators to ask, the one that decides first. Throws as make_plan does.
std::vector<std::string> estimators_asked(const runfile::RunConfig& c, plugin::Registry& registry,
                                          const PlanRequest& request);

/// One estimator's figure, the host's buffers added where it is exact, judged: what make_plan puts into a
/// row.
report::Estimate estimate(const Resolved& r, plugin::Registry& registry, const PlanRequest& request,
                          const std::string& id, const TrainerTraits& traits);

/// The trainer's own plan with the host's buffers: what training will be held to.
report::Estimate trainer_plan(const Resolved& r, plugin::Trainer& trainer, bool profiled = false);

/// Bytes of text that the data of this run holds in memory.
std::uint64_t planned_data_bytes(const runfile::RunConfig& c);

/// "f32, B 8 x S 128, accumulate 1, adamw, recompute none"; "…, recompute auto: layers 0-3 full, 4-11
/// selective".
std::string describe_run(const runfile::RunConfig& c);
/// The same with `recompute` as its last part ("": not said).
std::string describe_run(const runfile::RunConfig& c, const std::string& recompute);
/// What is made again in the backward pass: by the run's word, or by the mode that a trainer chose for a run
/// which says none.
std::string recompute_words(const runfile::RunConfig& c, const TrainerTraits& traits);

}  // namespace trainhost::planning
