// Files that a command writes because an option asked for one: refused in plain words before any work is
// done, and put in place whole. Never a half-written file, never over anything but a regular file.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace trainhost::checkpoint {

/// Throws usage_error naming the option where no file can be put: no name, a directory in its place, a
/// missing directory, no permission. `example` goes into the hint: "--html plan.html".
void require_place_for(std::string_view option, const std::filesystem::path& file, std::string_view example);

/// As require_place_for; then writes beside the place and renames. Throws run_error where the disk refuses;
/// what stood there before then still stands.
void write_output(std::string_view option, const std::filesystem::path& file, std::string_view text,
                  std::string_view example);

}  // namespace trainhost::checkpoint
