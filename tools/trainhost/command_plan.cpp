// trainhost plan: the memory of a run and whether it fits. Reads no training data and queries no device
// except the free memory that serves as the default budget.
#include <fmt/format.h>

#include "core/checkpoint/output_file.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/planning/framework_answers.hpp"
#include "core/planning/make_plan.hpp"
#include "core/planning/suggest_changes.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "core/training/batches.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {

Exit run(const PlanArguments& a) {
  // Before any computation: a plan with all limits can take seconds, and would be lost.
  constexpr const char *kHtml = "--html plan.html", *kCsv = "--csv plan.csv";
  if (!a.html.empty()) checkpoint::require_writable("--html", a.html, kHtml);
  if (!a.csv.empty()) checkpoint::require_writable("--csv", a.csv, kCsv);
  const std::vector<runfile::Override> more = target_overrides(a.target);
  runfile::RunConfig c = load_config(a.common, more);
  if (a.print_run) {
    fmt::print("{}", runfile::without_defaults(c.resolved()));
    return Exit::kDone;
  }
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
  if (!a.html.empty()) checkpoint::write_output("--html", a.html, report::plan_html(v), kHtml);
  if (!a.csv.empty()) checkpoint::write_output("--csv", a.csv, report::plan_csv(v), kCsv);
  const report::Terminal terminal = report::terminal_of(1);
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", report::plan_json(v));
  else if (!a.common.quiet)
    fmt::print("{}{}", report::memory_table(v, terminal),
               a.explain ? report::explain_table(v, terminal) : "");
  return v.estimates.front().fits ? Exit::kDone : Exit::kDoesNotFit;
}

}  // namespace trainhost::cli
