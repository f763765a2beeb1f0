// Whether one key is another one misspelt, for names that a pattern accepts. Pure functions.
#pragma once
#include <string_view>

namespace trainhost {

/// Whether `word` is `known` with one or two letters changed, left out, added or exchanged with their
/// neighbours; only one in names of less than 8 letters. Case and separators do not count: names that differ
/// in nothing else are one name, and no misspelling.
bool is_misspelling(std::string_view word, std::string_view known);

}  // namespace trainhost
