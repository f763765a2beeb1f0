// See system_files.hpp.
#include "core/machine/system_files.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/base/directory.hpp"
#include "core/machine/finding.hpp"

namespace trainhost::machine {
namespace {

constexpr std::string_view kSpaces = " \t\n\r";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kSpaces);
  return first == text.npos ? std::string_view()
                            : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

}  // namespace

const char* state_name(State s) {
  return s == State::kOk ? "ok" : s == State::kWarning ? "warning" : "error";
}

std::optional<std::string> file_text(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return std::nullopt;
  return std::string(trimmed(text));
}

std::string value_of_line(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const auto colon = line.find(':');
    if (colon != line.npos && trimmed(line.substr(0, colon)) == key)
      return std::string(trimmed(line.substr(colon + 1)));
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return {};
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  return ec == std::errc{} ? std::optional(n) : std::nullopt;
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::error_code ec;
  std::vector<std::string> names = names_in_directory(directory, ec);
  std::sort(names.begin(), names.end());
  return ec ? std::vector<std::string>{} : names;
}

std::vector<std::filesystem::path> control_groups(const std::filesystem::path& root,
                                                  std::string_view controller) {
  std::vector<std::filesystem::path> out;
  std::istringstream lines(file_text(root / "proc/self/cgroup").value_or(""));
  // "0::/path" is the line of version 2, "4:cpu,cpuacct:/path" one of version 1.
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::filesystem::path base = root / "sys/fs/cgroup";
    if (controllers != ",,") {
      if (controllers.find("," + std::string(controller) + ",") == controllers.npos) continue;
      base /= controller;
    }
    std::string path = line.substr(second + 1);
    while (path.ends_with('/')) path.pop_back();
    for (;; path.erase(path.rfind('/'))) {
      out.push_back(base / std::filesystem::path(path).relative_path());
      if (path.find('/') == path.npos) break;
    }
  }
  return out;
}

}  // namespace trainhost::machine
