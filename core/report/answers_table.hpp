// The plan's answers for people: what would make it fit, how far it can go. Part of memory_table.
#pragma once
#include <string>

#include "core/report/plan_report.hpp"

namespace trainhost::report {

/// "To make it fit, one of:" with at most two changes of a price; JSON has them all. "" where the run fits;
/// one sentence where nothing was found.
std::string changes_table(const planning::PlanResult& v, const Terminal& t);
std::string limits_table(const planning::PlanResult& v, const Terminal& t);

}  // namespace trainhost::report
