// `data stats` and `data show` of a run file, which command_data_records.cpp calls for one, and what both
// files share.
#pragma once
#include <span>
#include <string>

#include "core/base/json_value.hpp"
#include "core/records/chat_template.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

/// Whether the arguments name a run: a run file, or only settings. Throws usage_error for options that do not
/// apply to it, or to records.
bool names_run(const DataRecordsArguments& a);
Exit stats_of_run(const DataStatsArguments& a);
Exit show_of_run(const DataShowArguments& a);

/// Text in which what is counted in the loss is green, or without colours in {+ and +}.
std::string marked_text(std::span<const records::Part> parts, const report::Terminal& terminal);
JsonValue parts_json(std::span<const records::Part> parts);

}  // namespace trainhost::cli
