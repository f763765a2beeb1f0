// Renders a ProfileResult for `train --profile`.
#pragma once
#include <string>

#include "core/report/terminal.hpp"
#include "core/training/profile_result.hpp"

namespace trainhost::report {

std::string profile_table(const training::ProfileResult& v, const Terminal& t);

/// The "profile" object of the done event and of summary.json.
std::string profile_json(const training::ProfileResult& v);

}  // namespace trainhost::report
