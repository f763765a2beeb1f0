// Scripts and notebooks in Python, which people give in place of a configuration file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/error.hpp"

namespace trainhost::runfile {

/// The contents of a configuration file, as read_text_file() reads them. Throws usage_error for Python: *.py,
/// *.ipynb, or a first line that starts it. Settings of a script are known only while it runs, so the hint is
/// a plan with options instead, with the model and the framework that words of the text name, and the files
/// that are read. `shown`: the path in messages.
std::string read_configuration(const std::filesystem::path& path, const std::string& shown,
                               std::uint64_t max_bytes, const std::string& what, const Where& where);

}  // namespace trainhost::runfile
