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

struct Estimates {
  std::vector<Estimate> all;            // at least one
  std::vector<FailedEstimator> failed;  // could not be asked
};

Estimates estimates_of(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request,
                       const TrainerTraits& traits) {
  ChosenEstimators chosen = choose_estimators(r.config, registry, request);
  Estimates out;
  for (const std::string& id : chosen.ids) out.all.push_back(estimate_run(r, registry, request, id, traits));
  out.failed = std::move(chosen.failed);
  return out;
}

/// An estimator of a framework refuses what it does not describe with the status "unsupported"; then the
/// closed form answers, and says why. One that the user named gives an error.
Estimates estimates_or_closed_form(const ResolvedRun& r, plugin::Registry& registry, PlanRequest request,
                                   const TrainerTraits& traits) {
  const std::vector<std::string>& wanted =
      request.estimators.empty() ? r.config.estimators : request.estimators;
  try {
    return estimates_of(r, registry, request, traits);
  } catch (const plugin::PluginError& e) {
    if (r.config.framework.empty() || e.status() != "unsupported" || wanted.front() != "auto" ||
        !registry.find(kClosedFormEstimator))
      throw;
    request.estimators = {kClosedFormEstimator};
    Estimates out = estimates_of(r, registry, request, traits);
    std::vector<std::string>& notes = out.all.front().report.notes;
    notes.insert(notes.begin(),
                 fmt::format("{}{}. The closed form '{}' answers instead: it assumes fused kernels, and {} "
                             "keeps more activations.",
                             escaped(e.what(), 400),
                             e.hint().empty() ? "" : fmt::format(" ({})", escaped(e.hint(), 200)),
                             kClosedFormEstimator, escaped(r.config.framework, 80)));
    return out;
  }
}

/// Settings of the framework that the deciding estimator does not take.
void note_settings_without_effect(const runfile::RunConfig& c, const plugin::Registry& registry,
                                  PlanResult& v) {
  const auto given = c.plugin_options.find(plugin::kFrameworkOptions);
  const std::string& id = v.estimates.front().report.source;
  const plugin::Candidate* estimator = registry.find(id);
  if (given == c.plugin_options.end() || !estimator) return;
  const std::vector<std::string>& options = estimator->manifest.options;
  std::vector<std::string> without;
  for (const auto& [key, value] : given->second) {
    if (key == "framework" || key == "cross_entropy" || key == "compute_capability" ||
        std::ranges::find(options, key) != options.end())
      continue;
    const std::string setting = key == "lora_dropout" ? fmt::format("lora.dropout = {}", escaped(value, 80))
                                : key == "lora_head"  ? "lm_head in lora.targets"
                                : key.starts_with("saved_") ? "lora.modules_to_save"
                                : key == "lora_embedding"
                                    ? "embed_tokens in lora.targets"
                                    : fmt::format("plan.{} = \"{}\"", key, escaped(value, 80));
    without.push_back(setting);
  }
  if (!without.empty())
    v.notes.push_back(
        fmt::format("without effect on the estimate of '{}': {}", escaped(id, 80), fmt::join(without, ", ")));
}

PlanResult plan_in_stages(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request) {
  const TrainerTraits traits = planned_traits(r, registry, request);
  Estimates estimates = estimates_or_closed_form(r, registry, request, traits);
  PlanResult v = describe_plan(r, registry, request, traits, estimates.all.front().report);
  v.estimates = std::move(estimates.all);
  for (const FailedEstimator& f : estimates.failed)
    v.notes.push_back(fmt::format("the estimator {} is left out: {}", f.estimator, f.error));
  v.failed_estimators = std::move(estimates.failed);
  note_settings_without_effect(r.config, registry, v);
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
