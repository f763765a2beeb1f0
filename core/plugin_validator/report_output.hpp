// A report for people, for programs (JSON) and for continuous integration (JUnit). Pure: text out, nothing
// printed.
#pragma once
#include <string>

#include "core/plugin_validator/runner.hpp"

namespace trainhost::plugin_validator {

/// "ok    C-021 The entry returns its table, ..."; a reason stands indented below it.
std::string line_of(const Result& r, bool verbose);

/// "62 passed, 1 failed, 7 skipped (seed 1)", and how to repeat what failed.
std::string summary_of(const Report& r);

/// {"schema": "trainhost.check/1", "plugin": ..., "checks": [{"id", "level", "title", "outcome", "reason",
/// "seconds"}]}
std::string json_of(const Report& r);

/// One testsuite; a crash is an error, a broken promise a failure.
std::string junit_of(const Report& r);

/// Every check: id, level, title.
std::string list_text();

}  // namespace trainhost::plugin_validator
