// Parses TOML text into a flat list of entries. Only this file uses the TOML library. It knows no run-file
// key.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/runfile/run_file_error.hpp"
#include "core/runfile/value.hpp"

namespace trainhost::runfile {

/// All tables and values of `text` in file order, after guard_toml(). `name`: the file's name in messages.
/// Throws usage_error with the position if `text` is not valid TOML, or for a quoted key with a character
/// that no key has. `errors`: where such keys go instead; they are left out.
std::vector<Entry> read_toml(const std::string& text, const std::string& name,
                             std::vector<RunFileError>* errors = nullptr);

/// The TOML value in `key = VALUE`; nullopt if `text` is not one TOML value.
std::optional<Value> read_toml_value(const std::string& text, const Where& where);

}  // namespace trainhost::runfile
