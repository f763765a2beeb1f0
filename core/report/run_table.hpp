// Compares runs: their results and the settings in which they differ, as a table for a terminal, as rows for
// a page, and as JSON.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/report/run_record.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {

using RunRecords = std::vector<std::unique_ptr<RunRecord>>;

/// Headings of `compare`, then one row per run; "" where a value is not known.
std::vector<std::vector<std::string>> run_rows(const RunRecords& runs);
/// Keys of the run files whose values differ: {key, value of each run}; "" where a run does not have it. Not
/// output.dir.
std::vector<std::vector<std::string>> differing_settings(const RunRecords& runs);

/// Both as tables of a terminal.
std::string compare_table(const RunRecords& runs, const Terminal& t);
/// trainhost.compare/1.
std::string compare_json(const RunRecords& runs);

}  // namespace trainhost::report
