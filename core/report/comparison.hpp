// Several estimates of one run, a line each: what kind of claim, how much, how far from the first and why.
// Reads what the plan holds and judges nothing: an estimate's reason is its own first note.
#pragma once
#include <string>

#include "core/report/plan_report.hpp"

namespace trainhost::report {

/// Columns: estimator, kind, total of all tiers, difference from the first, why. v has estimates.
std::string comparison_table(const planning::PlanResult& v, const Terminal& t);

/// The first clause of an estimate's first note, in lower case at its beginning as part of a table; "" where
/// it has none.
std::string reason(const planning::Estimate& e);

}  // namespace trainhost::report
