// Scripts and notebooks in Python, which people give in place of a configuration file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace trainhost::runfile {

/// Whether a file is a script or a notebook in Python: *.py, *.ipynb, or a first line that starts it.
bool is_python(const std::string& path, std::string_view text);

/// The contents of a run file, as read_text_file() reads them. Throws usage_error for Python, whose hint is
/// the option that reads it. `shown`: the path in messages.
std::string read_configuration(const std::filesystem::path& path, const std::string& shown,
                               std::uint64_t max_bytes, const std::string& what, const Where& where);

/// "plan the same job with options: trainhost plan --model=...", with the model and the framework that words
/// of the text name.
std::string plan_of_script(std::string_view text);

}  // namespace trainhost::runfile
