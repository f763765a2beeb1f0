// See make_plan.hpp.
#include "core/planning/make_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/describe_plan.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/estimate_run.hpp"

namespace trainhost::planning {
namespace {

std::vector<Estimate> estimates_of(const ResolvedRun& r, plugin::Registry& registry,
                                   const PlanRequest& request, const TrainerTraits& traits) {
  std::vector<Estimate> estimates;
  for (const std::string& id : choose_estimators(r.config, registry, request))
    estimates.push_back(estimate_run(r, registry, request, id, traits));
  return estimates;
}

/// The closed form, for a run in a framework that no estimator describes. `why`: a sentence for the user.
std::vector<Estimate> estimates_by_closed_form(const ResolvedRun& r, plugin::Registry& registry,
                                               PlanRequest request, const TrainerTraits& traits,
                                               const std::string& why) {
  request.estimators = {kClosedFormEstimator};
  std::vector<Estimate> estimates = estimates_of(r, registry, request, traits);
  std::vector<std::string>& notes = estimates.front().report.notes;
  notes.insert(notes.begin(),
               fmt::format("{}. The closed form '{}' answers instead: it assumes fused kernels, "
                           "and {} keeps more activations.",
                           escaped(why, 400), kClosedFormEstimator, escaped(r.config.framework, 80)));
  return estimates;
}

/// An estimator of a framework refuses what it does not describe with the status "unsupported". One that the
/// user named gives an error.
std::vector<Estimate> estimates_or_closed_form(const ResolvedRun& r, plugin::Registry& registry,
                                               const PlanRequest& request, const TrainerTraits& traits) {
  const std::vector<std::string>& wanted =
      request.estimators.empty() ? r.config.estimators : request.estimators;
  try {
    return estimates_of(r, registry, request, traits);
  } catch (const plugin::PluginError& e) {
    if (r.config.framework.empty() || e.status() != "unsupported" || wanted.front() != "auto" ||
        !registry.find(kClosedFormEstimator))
      throw;
    return estimates_by_closed_form(r, registry, request, traits, e.what());
  }
}

PlanResult plan_in_stages(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request) {
  const TrainerTraits traits = planned_traits(r, registry, request);
  std::vector<Estimate> estimates = estimates_or_closed_form(r, registry, request, traits);
  PlanResult v = describe_plan(r, registry, request, traits, estimates.front().report);
  v.estimates = std::move(estimates);
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
