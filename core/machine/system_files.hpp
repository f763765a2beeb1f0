// Small files of /proc and /sys below a root, and the control groups of this process. Every function accepts
// files that are missing or that have other contents: containers hide some of them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::machine {

/// The contents without white space at both ends; nullopt if the file cannot be read.
std::optional<std::string> file_text(const std::filesystem::path& file);

/// The value of the first line "KEY   : VALUE" or "KEY: VALUE"; "" if there is none.
std::string value_of_line(std::string_view text, std::string_view key);

/// The number at the start of `text`; nullopt if there is none.
std::optional<std::uint64_t> leading_number(std::string_view text);

/// The names in a directory, sorted; empty if it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& directory);

/// The directories of the control group of this process with that controller ("memory", "cpu"), of version 1
/// and of version 2, each followed by its parents: limits of all of them apply.
std::vector<std::filesystem::path> control_groups(const std::filesystem::path& root,
                                                  std::string_view controller);

}  // namespace trainhost::machine
