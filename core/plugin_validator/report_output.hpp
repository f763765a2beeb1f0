// A report as text, JSON and JUnit. Pure: returns text and prints nothing.
#pragma once
#include <string>

#include "core/plugin_validator/runner.hpp"

namespace trainhost::plugin_validator {

/// "ok    C-021 The entry returns its table, ..."; the reason is on an indented line below.
std::string line_of(const Result& r, bool verbose);

/// "62 passed, 1 failed, 7 skipped (seed 1)", and the command that explains the first failure.
std::string summary_of(const Report& r);

/// {"schema": "trainhost.check/1", "plugin": ..., "checks": [{"id", "level", "title", "outcome", "reason",
/// "seconds"}]}
std::string json_of(const Report& r);

/// One testsuite; a crash or timeout is an error, a failed check a failure.
std::string junit_of(const Report& r);

}  // namespace trainhost::plugin_validator
