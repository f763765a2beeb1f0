// The documentation of a check, from the table: `--explain` prints the same text that its page contains.
// Pages are generated (`trainhost plugins check --pages DIR`, target sdk_docs) and not committed.
#pragma once
#include <map>
#include <string>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {

/// For a terminal, wrapped at 100 columns.
std::string explain(const Check& c);

/// Markdown pages by file name: ID.md for each check, and their index README.md.
std::map<std::string, std::string> pages();

}  // namespace trainhost::plugin_validator
