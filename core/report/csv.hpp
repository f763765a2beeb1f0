// One line of comma-separated values (RFC 4180): a field with a comma, a quote or a line break is quoted.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::report {

inline std::string csv_field(std::string_view s) {
  if (s.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(s);
  std::string out = "\"";
  for (char c : s) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

inline std::string csv_line(const std::vector<std::string_view>& fields) {
  std::string out;
  for (std::size_t i = 0; i < fields.size(); ++i) out += (i ? "," : "") + csv_field(fields[i]);
  return out + "\n";
}

}  // namespace trainhost::report
