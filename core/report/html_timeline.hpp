// The timeline of a step as a chart with its peak named, and as a table. Part of plan_html.
#pragma once
#include <string>

#include "core/report/plan_report.hpp"

namespace trainhost::report {

/// Components are 1 .. this.
constexpr unsigned html_component_count() { return static_cast<unsigned>(Component::kRuntime); }

/// "" where the view has no moments. Longer steps are drawn by their worst moments, so that the peak is
/// always there.
std::string html_timeline(const planning::PlanResult& v);

}  // namespace trainhost::report
