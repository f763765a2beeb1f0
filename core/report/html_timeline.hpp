// Memory during one step as a chart that names the peak, and as a table. Part of plan_html.
#pragma once
#include <string>

#include "core/report/plan_report.hpp"

namespace trainhost::report {

/// Component enumerators are 1 to this number.
constexpr unsigned html_component_count() { return static_cast<unsigned>(Component::kRuntime); }

/// "" without a timeline. A long step is drawn by the largest phase of each group of neighbours, so the peak
/// is always visible.
std::string html_timeline(const planning::PlanResult& v);

}  // namespace trainhost::report
