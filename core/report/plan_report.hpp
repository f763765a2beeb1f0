// Renders the results of core/planning for `plan` and the start of training, `sweep` and `search`. Computes
// no sizes.
#pragma once
#include <string>

#include "core/planning/plan_result.hpp"
#include "core/planning/search_result.hpp"
#include "core/planning/sweep_result.hpp"
#include "core/report/html_page.hpp"
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
/// The HTML page; picture_svg() and picture_png() make a picture of it.
html::Page plan_page(const planning::PlanResult& v);
/// plan_page() as a self-contained file; likewise below.
std::string plan_html(const planning::PlanResult& v);

/// The trainhost.plan/1 object as JSON text; indent < 0: one line.
std::string plan_json(const planning::PlanResult& v, int indent = 2);

/// A pickle that PyTorch's memory visualiser opens.
std::string memory_snapshot_pickle(const planning::MemorySnapshot& s);

/// True if any point has other automatic choices (`how`) than the first one; only then is `how` shown.
bool how_differs(const planning::SweepResult& v);

std::string sweep_table(const planning::SweepResult& v, const Terminal& t);
std::string sweep_json(const planning::SweepResult& v);
std::string sweep_csv(const planning::SweepResult& v);
html::Page sweep_page(const planning::SweepResult& v);
std::string sweep_html(const planning::SweepResult& v);

std::string search_table(const planning::SearchResult& v, const Terminal& t);
std::string search_json(const planning::SearchResult& v);
std::string search_csv(const planning::SearchResult& v);
html::Page search_page(const planning::SearchResult& v);
std::string search_html(const planning::SearchResult& v);

}  // namespace trainhost::report
