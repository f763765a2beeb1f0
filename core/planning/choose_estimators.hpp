// Second stage of planning: which estimators are asked, and in which order. Next stage: estimate_run.hpp.
#pragma once
#include <string>
#include <vector>

#include "core/planning/resolve_run.hpp"

namespace trainhost::planning {

/// Id of the estimator of closed forms, which plans every known decoder.
inline constexpr const char* kClosedFormEstimator = "transformer";
inline constexpr const char* kProgramEstimator = "llama";  // places the step program

struct ChosenEstimators {
  std::vector<std::string> ids;         // at least one; the first one decides whether the run fits
  std::vector<FailedEstimator> failed;  // could not say whether they match
};

/// The estimators to ask. "auto" selects the estimator with the best match for the model and the run; "all"
/// adds every other estimator that matches, and to `failed` those that were rejected.
/// Throws usage_error where no estimator matches.
ChosenEstimators choose_estimators(const runfile::RunConfig& c, plugin::Registry& registry,
                                   const PlanRequest& request);

/// Throws usage_error, with the names that are known, where no installed estimator describes plan.framework.
void require_framework(const plugin::Registry& registry, const runfile::RunConfig& c);

/// Whether the estimator describes the training steps that are planned: those of plan.framework, or of
/// trainhost's own trainers. An estimator that lists no framework describes the latter.
bool describes_framework(const plugin::Registry& registry, const std::string& id,
                         const runfile::RunConfig& c);

/// How well an estimator matches model and run, of 1000; 0: not at all, or it describes the training steps of
/// another framework than plan.framework. One that fails, or is rejected when it is loaded, does not stop the
/// others: it is added to `failed`.
int match_of(plugin::Registry& registry, const std::string& id, const runfile::RunConfig& c,
             std::vector<FailedEstimator>* failed = nullptr);

/// The estimator with this id. Throws usage_error with `where` (position of the name in the run file) for an
/// unknown id or a rejected plugin file.
plugin::Estimator& find_estimator(plugin::Registry& registry, const std::string& id, const Where& where);

/// One line per estimator and rejected plugin file: how well it matches, or why it was not loaded. For -v.
std::string estimator_trace(const runfile::RunConfig& c, plugin::Registry& registry);

}  // namespace trainhost::planning
