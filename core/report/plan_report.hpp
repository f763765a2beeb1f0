// Renders a PlanResult for `plan` and for the start of training. Computes no sizes.
#pragma once
#include <string>

#include "core/planning/plan_result.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {

/// Tables for a terminal: model, memory by component, budget, changes and limits.
std::string memory_table(const planning::PlanResult& v, const Terminal& t);

/// The choice made for train.recompute = "auto" as a JSON object: text and layer counts. Requires
/// v.recompute_layers.
std::string recompute_json(const planning::PlanResult& v);

/// Every entry with its formula and the numbers in it, largest first: plan --explain.
std::string explain_table(const planning::PlanResult& v, const Terminal& t);
/// One line per entry: estimator, tier, component, name, kind, bytes, bytes_at_peak, formula.
std::string plan_csv(const planning::PlanResult& v);
/// A self-contained HTML page.
std::string plan_html(const planning::PlanResult& v);

/// The trainhost.plan/1 object as JSON text; indent < 0: one line.
std::string plan_json(const planning::PlanResult& v, int indent = 2);

}  // namespace trainhost::report
