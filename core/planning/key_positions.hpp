// Where in the run file, or on the command line, a refusal has its cause. Who plans (an estimator, behind the
// C boundary) knows keys and no files: its sentence begins with the key, and here it gets that key's line.
// Changes no word of it. For sizes beyond 63 bits see size_overflow.hpp.
#pragma once
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// Where the key was set: file, line and column, or the option's name. Empty for a key that has its default.
Where place_of(const runfile::RunConfig& c, const std::string& key);

/// `e` with the place of the key that its sentence begins with ("parallel.tensor = 3 does not ..."); nullopt
/// where it has a place already, begins with no key, or the key has its default.
std::optional<Error> placed(const runfile::RunConfig& c, const Error& e);

}  // namespace trainhost::planning
