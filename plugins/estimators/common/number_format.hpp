// Number formats of the rule-of-thumb estimators: plain digits in formulas, thousands separators in notes.
// Bytes and counts for people come from core/base/text.hpp.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

#include "core/base/text.hpp"

namespace trainhost::rules {

inline std::string n(std::uint64_t v) { return std::to_string(v); }
inline std::string count(std::uint64_t v) { return format_count(v); }
/// "1,234,567 bytes (1.18 MiB)".
inline std::string bytes(std::uint64_t v) { return format_count(v) + " bytes (" + format_bytes(v) + ")"; }

inline std::string fixed(double v, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, v);
  return text;
}
/// Shortest form: "0.02", "870.4".
inline std::string shortest(double v) {
  char text[64];
  std::snprintf(text, sizeof text, "%.10g", v);
  return text;
}
/// "2 %", "0.0208 %": three significant digits.
inline std::string percent(std::uint64_t part, std::uint64_t whole) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3g %%", whole ? 100.0 * double(part) / double(whole) : 0.0);
  return text;
}
/// Relative error of `formula`; 1.1 compared with 1 is "+10.00 %".
inline std::string relative_error(std::uint64_t formula, std::uint64_t truth) {
  char text[64];
  std::snprintf(text, sizeof text, "%+.2f %%",
                truth ? 100.0 * (double(formula) - double(truth)) / double(truth) : 0.0);
  return text;
}

}  // namespace trainhost::rules
