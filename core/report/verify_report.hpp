// Renders the results of `trainhost verify` as a table and as JSON.
#pragma once
#include <string>
#include <vector>

#include "core/report/terminal.hpp"
#include "core/verify/contract_check.hpp"

namespace trainhost::report {

/// One row per check, followed by one line of detail per check. Details may contain text from a plugin; they
/// are escaped.
std::string verify_table(const std::vector<verify::Result>& results, const Terminal& t);

/// {"results":[{"id","status","measured","bound","detail"}]}; a figure that is absent or not finite is null.
std::string verify_json(const std::vector<verify::Result>& results);

}  // namespace trainhost::report
