// A number with its noun, for messages: "1 entry", "3 entries".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/text.hpp"

namespace trainhost {

/// `noun` in the singular. Plurals are regular: entry, entries; batch, batches; step, steps. The number is
/// that of format_count().
inline std::string plural(std::uint64_t n, std::string_view noun) {
  std::string text = format_count(n) + " " + std::string(noun);
  if (n == 1 || noun.empty()) return text;
  const auto one_of = [](char c, std::string_view letters) { return letters.find(c) != letters.npos; };
  const char last = noun.back(), before = noun.size() > 1 ? noun[noun.size() - 2] : '\0';
  if (last == 'y' && !one_of(before, "aeiou")) return text.replace(text.size() - 1, 1, "ies");
  if (one_of(last, "sxz") || (last == 'h' && one_of(before, "cs"))) return text + "es";
  return text + "s";
}

}  // namespace trainhost
