// Compares several estimates of one run, one line per estimator. The reason for a difference is the first
// note of the estimate.
#pragma once
#include <string>

#include "core/report/plan_report.hpp"

namespace trainhost::report {

/// Columns: estimator, kind, total of all tiers, difference from the first estimate, reason. Requires at
/// least one estimate.
std::string comparison_table(const planning::PlanResult& v, const Terminal& t);

/// The first clause of the first note, formatted as a table cell (no capital at the start); "" without notes.
std::string first_note_clause(const planning::Estimate& e);

}  // namespace trainhost::report
