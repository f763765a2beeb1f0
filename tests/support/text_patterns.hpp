// Regular expressions (ECMAScript) in tests. Compiled in one file, because <regex> takes two seconds of each
// file that includes it.
#pragma once
#include <string>
#include <vector>

namespace trainhost::test {

/// The text that matches, then its groups; empty: no match.
using Match = std::vector<std::string>;

/// The first match within `text`.
Match find_pattern(const std::string& text, const std::string& pattern);
/// All of them, from left to right.
std::vector<Match> find_patterns(const std::string& text, const std::string& pattern);
/// The match of the whole text.
Match match_pattern(const std::string& text, const std::string& pattern);
std::string replace_patterns(const std::string& text, const std::string& pattern, const std::string& by);

}  // namespace trainhost::test
