// What a run file must satisfy before the TOML library sees it: a parser with known weak spots gets only text
// that stays clear of them. Never parses; a file that passes may still be wrong, and then the parser says
// where.
#pragma once
#include <string>
#include <string_view>

namespace trainhost::runfile {

inline constexpr std::size_t kMaxTomlBytes = 1 << 20;
inline constexpr int kMaxTomlNesting = 64;  // brackets open at once
inline constexpr int kMaxTomlKeyDots = 32;  // parts of one dotted key, less one

/// Throws usage_error with the place when `text` is too big, is not UTF-8, nests too deeply, has a key of too
/// many parts, or has anything but ASCII outside strings and comments (TOML 1.0 allows no other bare keys).
void guard_toml(std::string_view text, const std::string& name);

}  // namespace trainhost::runfile
