// Output files that an option of a command names. An unusable path is reported before any work is done. A
// file is written completely or not at all, and replaces only a regular file.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace trainhost::checkpoint {

/// Throws usage_error with the option if `file` cannot be written: no file name, a directory, a missing
/// directory, no permission. `example` is part of the hint: "--html plan.html".
void require_writable(std::string_view option, const std::filesystem::path& file, std::string_view example);

/// Calls require_writable(), then writes a temporary file in the same directory and renames it. Throws
/// run_error if writing fails; a previous file is then unchanged.
void write_output(std::string_view option, const std::filesystem::path& file, std::string_view text,
                  std::string_view example);

}  // namespace trainhost::checkpoint
