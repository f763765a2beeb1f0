// TOML text to a flat list of entries. The only door to the TOML library; knows no key of ours.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/runfile/value.hpp"

namespace trainhost::runfile {

/// Every table and value of `text`, guarded and parsed; `name` stands for the file in places and messages.
std::vector<Entry> read_toml(const std::string& text, const std::string& name);

/// One TOML value as in `key = VALUE`; nullopt when `text` is not one.
std::optional<Value> read_toml_value(const std::string& text, const Where& where);

}  // namespace trainhost::runfile
