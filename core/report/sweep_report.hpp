// Renders a SweepResult for `sweep`.
#pragma once
#include <string>

#include "core/planning/sweep_result.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {

/// True if any point has other automatic choices (`how`) than the first one; only then is `how` shown.
bool how_differs(const planning::SweepResult& v);

std::string sweep_table(const planning::SweepResult& v, const Terminal& t);
std::string sweep_json(const planning::SweepResult& v);
std::string sweep_csv(const planning::SweepResult& v);
std::string sweep_html(const planning::SweepResult& v);

}  // namespace trainhost::report
