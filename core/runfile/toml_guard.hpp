// Limits that a run file must satisfy before toml++ parses it, because toml++ 3.3 fails badly on some inputs.
// This is not a parser: a text that passes may still be malformed, which toml++ then reports.
#pragma once
#include <string>
#include <string_view>

namespace trainhost::runfile {

inline constexpr std::size_t kMaxTomlBytes = 1 << 20;
inline constexpr int kMaxTomlNesting = 64;  // brackets that are open at the same time
inline constexpr int kMaxTomlKeyDots = 32;  // number of parts of one dotted key, minus one

/// Throws usage_error with the position if `text` is larger than kMaxTomlBytes, is not UTF-8, exceeds a limit
/// above, or has non-ASCII characters outside strings and comments (which TOML 1.0 does not allow in bare
/// keys).
void guard_toml(std::string_view text, const std::string& name);

}  // namespace trainhost::runfile
