// No locale, no I/O. Inputs are untrusted: every loop is bounded by the length of its input.
#include "core/base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace trainhost {
namespace {

/// Length of the UTF-8 sequence at the start of `s`, 0 if invalid; stores the code point. Rejects what a
/// lenient decoder accepts: overlong forms, surrogates, and values above U+10FFFF, with which text could be
/// written so that checks and terminals read it differently.
std::size_t decode_utf8(std::string_view s, std::uint32_t& point) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  if (s.empty()) return 0;
  if (byte(0) < 0x80) {
    point = byte(0);
    return 1;
  }
  const std::size_t n = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || s.size() < n) return 0;
  point = byte(0) & (0x7Fu >> n);
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (n == 3 && point < 0x800) || (n == 4 && point < 0x10000);
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  // C0 and C1 are excluded above; they could only begin overlong forms of ASCII.
  return overlong || surrogate || point > 0x10FFFF ? 0 : n;
}

/// Control characters, and those that change the text direction and so can falsify a terminal line.
bool unprintable(std::uint32_t point) {
  return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x200E || point == 0x200F ||
         point == 0x061C || (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
// Decimal and binary units are different numbers and never mixed up: GB is 10^9, GiB is 2^30.
constexpr std::uint64_t kKi = 1024;
constexpr Unit kUnits[] = {{"", 1},
                           {"b", 1},
                           {"kb", 1000},
                           {"mb", 1000'000},
                           {"gb", 1000'000'000},
                           {"tb", 1000'000'000'000},
                           {"pb", 1000'000'000'000'000},
                           {"kib", kKi},
                           {"mib", kKi* kKi},
                           {"gib", kKi* kKi* kKi},
                           {"tib", kKi* kKi* kKi* kKi},
                           {"pib", kKi* kKi* kKi* kKi* kKi}};

/// "" and "B" are bytes. Case does not matter, because "GIB" or "gb" cannot mean anything else here.
std::optional<std::uint64_t> unit_factor(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const Unit& u : kUnits)
    if (u.name == lower) return u.factor;
  return std::nullopt;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

}  // namespace

/// Integers take an exact path: a double would round sizes above 2^53. Fractions are rounded down to bytes.
std::optional<std::uint64_t> parse_size(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.')) return std::nullopt;
  constexpr std::uint64_t kMax = INT64_MAX;
  const char *begin = text.data(), *end = begin + text.size();

  std::uint64_t whole = 0;  // integers: exact
  if (auto [at, error] = std::from_chars(begin, end, whole); error == std::errc()) {
    const auto factor = unit_factor(trimmed({at, static_cast<std::size_t>(end - at)}));
    // The factor is at least 1, so the division is exact enough to exclude overflow.
    if (factor) return whole <= kMax / *factor ? std::optional(whole * *factor) : std::nullopt;
  }
  long double number = 0;  // "1.5GiB", "2e9"
  const auto [at, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  const auto factor = unit_factor(trimmed({at, static_cast<std::size_t>(end - at)}));
  if (!factor) return std::nullopt;
  const long double bytes = number * static_cast<long double>(*factor);
  // 2^63 as a literal: it is exact in long double. "1.5" without a unit is not a number of bytes.
  if (bytes >= 9223372036854775808.0L || (*factor == 1 && bytes != std::floor(bytes))) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

/// Three significant digits. 1023.5 and the limits below are where rounding would print a fourth digit:
/// 1023.7 KiB is "1.00 MiB", not "1024 KiB".
std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < std::size(kNames)) value /= 1024, ++unit;
  char out[48];
  std::snprintf(out, sizeof out, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, kNames[unit]);
  return out;
}

std::string format_count(std::uint64_t n) {
  std::string digits = std::to_string(n);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

/// Every message that contains text of a file, a plugin or the command line passes through this: terminals
/// execute escape sequences, and a reversed line can show another text than it contains.
std::string escaped(std::string_view text, std::size_t max) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    // Checked per character, so the result exceeds `max` by at most one escaped character and "...".
    if (out.size() >= max) return out + "...";
    // Most texts are ASCII throughout; a run of it is copied at once.
    const std::size_t limit = i + std::min(text.size() - i, max - out.size());
    std::size_t plain = i;
    while (plain < limit && text[plain] >= ' ' && text[plain] <= '~') ++plain;
    if (plain > i) {
      out += text.substr(i, plain - i);
      i = plain;
      continue;
    }
    std::uint32_t point = 0;
    const std::size_t n = decode_utf8(text.substr(i), point);
    if (n && !unprintable(point)) {
      out += text.substr(i, n);
      i += n;
      continue;
    }
    for (const std::size_t end = i + std::max<std::size_t>(n, 1); i < end; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

/// escaped() comes first: it bounds the length, so that no character reference is cut in half. All five
/// characters are replaced in every context, so that a caller cannot choose the wrong function.
std::string escaped_markup(std::string_view text, std::size_t max) {
  std::string out;
  for (const char c : escaped(text, max)) {
    const std::string_view reference = c == '&'    ? "&amp;"
                                       : c == '<'  ? "&lt;"
                                       : c == '>'  ? "&gt;"
                                       : c == '"'  ? "&quot;"
                                       : c == '\'' ? "&#39;"
                                                   : "";
    reference.empty() ? out += c : out += reference;
  }
  return out;
}

/// Deterministic on every machine, unlike std::hash. Not collision-resistant: a file could be made to
/// collide.
std::uint64_t fnv1a(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

bool valid_utf8(std::string_view text) {
  std::uint32_t point;
  while (!text.empty()) {
    const std::size_t n = decode_utf8(text, point);
    if (!n) return false;
    text.remove_prefix(n);
  }
  return true;
}

}  // namespace trainhost
