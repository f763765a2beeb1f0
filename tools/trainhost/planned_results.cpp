// See planned_results.hpp.
#include "tools/trainhost/planned_results.hpp"

#include <fmt/format.h>

#include <set>

#include "core/base/error.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/planning/framework_answers.hpp"
#include "core/planning/make_plan.hpp"
#include "core/planning/search_layouts.hpp"
#include "core/planning/suggest_changes.hpp"
#include "core/planning/sweep.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// The keys that the search will choose, so that loading the run does not reject combinations with them:
/// `--set parallel.expert=8` alone is valid here, because the search finds the data-parallel ranks for it.
/// None without --devices: then the run file itself states the number of ranks and must be a valid run.
std::set<std::string> keys_to_search(const planning::SearchRequest& request) {
  std::set<std::string> keys;
  if (!request.devices) return keys;
  for (const char* key : planning::kSearchedKeys)
    if (!request.fixed.count(key)) keys.insert(key);
  return keys;
}

}  // namespace

planning::PlanResult plan_of(const PlanArguments& a) {
  const std::vector<runfile::Override> more = target_overrides(a.target);
  runfile::RunConfig c = load_config(a.common, more);
  const auto registry = make_registry(a.common, &c);
  planning::PlanRequest request;
  request.estimators = split_commas(a.estimators);
  request.trainer = planning::planned_trainer(c, *registry);
  request.elsewhere = planning::is_for_another_machine(c);
  const planning::ResolvedRun resolved = planning::resolve_run(c, *registry, request);
  if (a.common.verbosity) write_stderr(planning::estimator_trace(resolved.config, *registry));
  planning::PlanResult v = planning::make_plan(resolved, *registry, request);

  // A model alone says nothing about who trains it.
  if (!a.common.model.empty() && !c.given.count("plan.framework") && request.estimators.empty())
    planning::add_framework_answers(v, c, *registry);

  // Limits need about thirty more plans: they are computed for --limits and for the HTML page only. The
  // timeline is computed where it is shown.
  planning::Replanner replan(source_of(a.common, more), *registry, request, resolved,
                             v.estimates.front().report.source);
  planning::add_changes_and_limits(v, replan, planning::planned_traits(resolved, *registry, request),
                                   {a.limits || !a.html.empty(), a.common.json || !a.html.empty()});

  v.file_keys = resolved.config.file_keys;
  v.command = command_line();
  return v;
}

planning::SweepResult sweep_of(const SweepArguments& a) {
  const planning::Axis axis = planning::parse_axis(a.over);
  for (const runfile::Override& o : overrides(a.common))
    if (o.key == axis.key)
      throw usage_error(fmt::format("{} is both set and swept over", axis.key), "remove one of the two",
                        {"--over"});
  planning::PlanRequest request;
  request.estimators = split_commas(a.estimators);
  planning::SweepResult v = planning::sweep(source_of(a.common, target_overrides(a.target)), axis, request);
  v.command = command_line();
  return v;
}

planning::SearchResult search_of(const SearchArguments& a) {
  planning::SearchRequest request;
  request.devices = a.devices;
  request.global_batch = a.global_batch;
  request.top = a.top;
  request.threads = a.threads;
  request.every = a.every;
  for (const runfile::Override& o : overrides(a.common)) request.fixed.insert(o.key);
  runfile::RunConfig c = load_config(a.common, target_overrides(a.target), keys_to_search(request));
  planning::SearchResult v = planning::search_layouts(c, request);
  v.file_keys = c.file_keys;
  v.command = command_line();
  return v;
}

}  // namespace trainhost::cli
