// Limits that a run file must satisfy before toml++ parses it, because toml++ 3.3 fails badly on some inputs.
// This is not a parser: a text that passes may still be malformed, which toml++ then reports.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainhost::runfile {

inline constexpr std::size_t kMaxTomlBytes = 1 << 20;
inline constexpr int kMaxTomlNesting = 64;  // brackets that are open at the same time
inline constexpr int kMaxTomlKeyDots = 32;  // number of parts of one dotted key, minus one

/// A string without closing quotes.
struct OpenString {
  std::uint32_t line, column;  // of its opening quotes, from 1
  std::string quotes;          // one, or three of a string of several lines
};

/// Throws usage_error with the position if `text` is larger than kMaxTomlBytes, is not UTF-8, exceeds a limit
/// above, or has non-ASCII characters outside strings and comments (which TOML 1.0 does not allow in bare
/// keys). Returns the first string that is not closed. A quote in a value without quotes begins one too
/// (don't), which the parser rejects before its end.
std::optional<OpenString> guard_toml(std::string_view text, const std::string& name);

}  // namespace trainhost::runfile
