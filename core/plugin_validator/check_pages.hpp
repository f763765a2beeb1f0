// Text of the check table: the list of `--list`, the explanation of `--explain`, and the pages of `--pages`
// (installed with the SDK).
#pragma once
#include <map>
#include <string>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {

/// Every check, for `--list`: id and title, by level.
std::string list_text();

/// For a terminal, wrapped at 100 columns.
std::string explain(const Check& c);

/// Markdown pages by file name: one per check, named after its id, and the index.
std::map<std::string, std::string> pages();

}  // namespace trainhost::plugin_validator
