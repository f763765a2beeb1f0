// See python_pins.hpp.
#include "core/framework_files/python_pins.hpp"

#include <algorithm>
#include <string_view>

namespace trainhost::framework_files::python {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_of_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

/// "trl[peft] == 0.12.0" anywhere in a line.
void add_pins(std::string_view line, std::uint32_t row, const Source& source, std::vector<Pin>& pins) {
  constexpr std::string_view kPinned = "==";
  for (std::size_t at = line.find(kPinned); at != line.npos; at = line.find(kPinned, at + kPinned.size())) {
    std::size_t end = at;
    while (end > 0 && line[end - 1] == ' ') --end;
    if (end > 0 && line[end - 1] == ']') end = std::min(line.rfind('[', end), end);  // extras
    std::size_t begin = end;
    while (begin > 0 && is_of_name(line[begin - 1])) --begin;
    std::size_t first = at + kPinned.size();
    while (first < line.size() && line[first] == ' ') ++first;
    std::size_t last = first;
    while (last < line.size() && (is_digit(line[last]) || line[last] == '.')) ++last;
    while (last > first && line[last - 1] == '.') --last;
    if (begin == end || first == last || !is_digit(line[first])) continue;
    pins.push_back({std::string(line.substr(begin, end - begin)),
                    std::string(line.substr(first, last - first)),
                    source.where(row, static_cast<std::uint32_t>(begin) + 1)});
  }
}

}  // namespace

std::vector<Pin> pinned_packages(const Source& source) {
  std::vector<Pin> pins;
  const std::string_view text = source.text;
  bool metadata = false, command = false;
  std::uint32_t row = 0;
  for (std::size_t begin = 0; begin < text.size(); ++row) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t content = line.find_first_not_of(" \t");
    const char start = content == line.npos ? '\0' : line[content];
    if (line.starts_with("# /// script"))
      metadata = true;
    else if (!line.starts_with('#') || line.starts_with("# ///"))
      metadata = false;
    command = source.notebook &&
              (command || ((start == '!' || start == '%') && line.find("pip install") != line.npos));
    if (metadata || command) add_pins(line, row, source, pins);
    command = command && line.ends_with('\\');
  }
  return pins;
}

}  // namespace trainhost::framework_files::python
