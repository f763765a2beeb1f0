// See toml_remedy.hpp. The parser says what it expected at a column; people need to know what to write. The
// rules look at the line itself and use the parser's description only where the line does not show the
// mistake. Each rule is tested in tests/core/runfile/mistakes_test.cpp.
#include "core/runfile/toml_remedy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"

namespace trainhost::runfile {
namespace {

constexpr std::string_view kSpace = " \t\r";
constexpr std::string_view kDigits = "0123456789";

std::string_view trimmed(std::string_view s) {
  const std::size_t first = s.find_first_not_of(kSpace);
  if (first == s.npos) return {};
  return s.substr(first, s.find_last_not_of(kSpace) - first + 1);
}

std::string_view text_of_line(std::string_view text, std::uint32_t line) {
  for (; line > 1; --line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// The line's parts around its first '='; the value without a comment.
struct KeyAndValue {
  std::string_view key, value;
};

KeyAndValue split(std::string_view line) {
  const std::size_t at = line.find('=');
  std::string_view value = line.substr(at + 1);
  // In a string '#' is a character of it.
  if (value.find_first_of("\"'") == value.npos) value = value.substr(0, value.find('#'));
  return {trimmed(line.substr(0, at)), trimmed(value)};
}

/// Without regard to case: True and YES are common mistakes.
bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) {
    return std::equal(word.begin(), word.end(), w.begin(), w.end(),
                      [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
  });
}

/// The value is a string that is not closed, or has a wrong escape.
std::string remedy_of_string(const KeyAndValue& kv, std::string_view reported) {
  if (reported.find("escape sequence") != reported.npos)
    return fmt::format("in double quotes write \\\\ for a backslash, or use single quotes: {} = 'PATH'",
                       escaped(kv.key, 60));
  const char quote = kv.value.front();
  // A lone quote is both the first and the last character.
  if (kv.value.size() < 2 || kv.value.back() != quote)
    return fmt::format("end the string with {} in the same line", quote);
  return "remove control characters from the string, or write several strings as a list: [\"A\", \"B\"]";
}

std::string remedy_of_number(const KeyAndValue& kv, std::string_view reported) {
  // Only the parser knows the range of a number; everything else is visible in its characters.
  if (reported.find("representable") != reported.npos) return "write a number of at most 18 digits";
  // "1,000" or "1, 2": a thousands separator and a list without brackets look alike.
  if (kv.value.find(',') != kv.value.npos) return "write numbers without separators, lists in []";
  const std::size_t point = kv.value.find('.');
  const auto digit_at = [&](std::size_t at) {
    return at < kv.value.size() && kDigits.find(kv.value[at]) != kDigits.npos;
  };
  if (point != kv.value.npos && !(point > 0 && digit_at(point - 1) && digit_at(point + 1)))
    return "write digits on both sides of the decimal point";
  if (kv.value.size() > 1 && kv.value.front() == '0' && digit_at(1)) return "remove the leading zeros";
  return "write a number as 8, 0.5 or 3e-4";
}

std::string remedy_of_value(const KeyAndValue& kv, std::string_view reported) {
  if (kv.key.empty()) return "write a key before '='";
  if (kv.value.empty()) return fmt::format("write a value after '=', or remove {}", escaped(kv.key, 60));
  // The first character decides what the value was meant to be.
  const char first = kv.value.front();
  if (first == '"' || first == '\'') return remedy_of_string(kv, reported);
  if (first == '[') return "separate the items of a list by commas, and end it with ]";
  if (first == '{') return "separate the entries of { } by commas, and end them with } in the same line";
  if (first == '=') return fmt::format("write one '=': {} = VALUE", escaped(kv.key, 60));
  if (kv.value.find('=') != kv.value.npos) return "write one KEY = VALUE per line";
  if (is_one_of(kv.value, {"true", "false", "yes", "no", "on", "off"})) return "write true or false";
  // What consists of digits, signs, points and exponents was meant as a number.
  if (kv.value.find_first_not_of("0123456789+-._,eExXoObB ") == kv.value.npos &&
      kv.value.find_first_of(kDigits) != kv.value.npos)
    return remedy_of_number(kv, reported);
  if (kv.value.find('"') != kv.value.npos) return "write the whole value in quotes";
  return fmt::format("write strings in quotes: {} = \"{}\"", escaped(kv.key, 60), escaped(kv.value, 60));
}

std::string remedy_of_header(std::string_view line, std::string_view reported) {
  // The line without its "[" and its comment.
  const std::string_view name = trimmed(line.substr(0, line.find('#'))).substr(1);
  const std::string_view word = trimmed(name.substr(0, name.find_first_of("] \t[")));
  if (word.empty()) return "write the name of a table: [train]";
  if (reported.find("redefine") != reported.npos)
    return fmt::format("move the keys of both tables [{}] into one", escaped(word, 60));
  return fmt::format("write the table header alone in its line: [{}]", escaped(word, 60));
}

}  // namespace

std::string toml_remedy(std::string_view text, std::uint32_t line_number, std::string_view reported) {
  const std::string_view line = trimmed(text_of_line(text, line_number));
  const auto says = [&](std::string_view words) { return reported.find(words) != reported.npos; };
  if (line.starts_with('[') && line.find('=') == line.npos) return remedy_of_header(line, reported);
  // Comments of other languages; before the search for "=", which a comment may contain.
  if (line.starts_with("//") || line.starts_with("/*") || line.starts_with(';'))
    return "begin a comment with #";
  if (says("redefine")) return "remove one of the two lines";
  const std::size_t equals = line.find('='), colon = line.find(':');
  if (colon != line.npos && (equals == line.npos || colon < equals))
    return fmt::format("write '=' between key and value: {} = VALUE",
                       escaped(trimmed(line.substr(0, colon)), 60));
  if (equals != line.npos) return remedy_of_value(split(line), reported);
  if (says("expected '='") && !line.empty())
    return fmt::format("write '=' between key and value: {} = VALUE",
                       escaped(line.substr(0, line.find_first_of(kSpace)), 60));
  return "each line is a [TABLE], KEY = VALUE or a # comment; `trainhost init` writes an example";
}

}  // namespace trainhost::runfile
