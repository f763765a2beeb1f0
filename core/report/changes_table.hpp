// Renders the suggested changes and the limits of a plan. Part of memory_table().
#pragma once
#include <string>

#include "core/report/plan_report.hpp"

namespace trainhost::report {

/// At most two changes per kind of cost (three if there is one kind only); JSON lists all. "" where the run
/// fits; one sentence where no change was found.
std::string changes_table(const planning::PlanResult& v, const Terminal& t);
/// The largest values that fit; "" where limits were not requested.
std::string limits_table(const planning::PlanResult& v, const Terminal& t);

}  // namespace trainhost::report
