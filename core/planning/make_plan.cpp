// See make_plan.hpp.
#include "core/planning/make_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/planning/choose_estimators.hpp"
#include "core/planning/describe_plan.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/estimate_run.hpp"

namespace trainhost::planning {
namespace {

PlanResult plan_in_stages(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request) {
  const TrainerTraits traits = planned_traits(r, registry, request);
  ChosenEstimators chosen = choose_estimators(r.config, registry, request);
  std::vector<Estimate> estimates;
  for (const std::string& id : chosen.ids)
    estimates.push_back(estimate_run(r, registry, request, id, traits));
  PlanResult v = describe_plan(r, registry, request, traits, estimates.front().report);
  v.estimates = std::move(estimates);
  for (const FailedEstimator& f : chosen.failed)
    v.notes.push_back(fmt::format("the estimator {} is left out: {}", f.estimator, f.error));
  v.failed_estimators = std::move(chosen.failed);
  return v;
}

/// An estimator that reads config.json reports the same unknown fields as the plan: print them once.
void remove_repeated_notes(PlanResult& v) {
  for (Estimate& e : v.estimates)
    std::erase_if(e.report.notes,
                  [&](const std::string& note) { return std::ranges::find(v.notes, note) != v.notes.end(); });
}

}  // namespace

PlanResult make_plan(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request) {
  PlanResult v = with_error_context(r.config, [&] { return plan_in_stages(r, registry, request); });
  remove_repeated_notes(v);
  return v;
}

}  // namespace trainhost::planning
