// The documentation of a check, from the table: what `--explain` prints and what a page of sdk/checks says
// are one text.
#pragma once
#include <map>
#include <string>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {

/// For a terminal, wrapped at 100 columns.
std::string explain(const Check& c);

/// Markdown: sdk/checks/ID.md by file name, and its index README.md.
std::map<std::string, std::string> pages();

}  // namespace trainhost::plugin_validator
