// See toml_remedy.hpp. The parser says what it expected at a column; people need to know what is wrong and
// what to write. The rules look at the line itself and use the parser's description only where the line does
// not show the mistake. Strings that are not closed and keys that are set twice need the text before the
// line: toml_read.cpp. Each rule is tested in tests/core/runfile/syntax_errors_test.cpp.
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

bool says(std::string_view reported, std::string_view words) { return reported.find(words) != reported.npos; }

/// What follows a complete value or a table header in its line. toml++ says this of the character there.
bool is_behind_value(std::string_view reported) {
  return says(reported, "expected a comment or whitespace") || says(reported, "expected value-terminator");
}

bool is_escape(std::string_view reported) {
  return says(reported, "escape sequence") || says(reported, "unicode scalar sequence");
}

/// A path of Windows, as a value, or within a list or a table in braces.
TomlMistake mistake_of_escape(std::string_view line) {
  std::string_view path = "PATH";
  std::size_t begin = line.find('"');
  for (std::size_t end; begin != line.npos && (end = line.find('"', begin + 1)) != line.npos;
       begin = line.find('"', end + 1)) {
    const std::string_view inner = line.substr(begin + 1, end - begin - 1);
    // One in single quotes cannot hold a single quote.
    if (inner.find('\\') != inner.npos && inner.find('\'') == inner.npos) {
      path = inner;
      break;
    }
  }
  const KeyAndValue kv = line.find('=') == line.npos ? KeyAndValue{} : split(line);
  const std::string key = kv.value.starts_with('"') ? escaped(kv.key, 60) + " = " : "";
  return {
      "a backslash in double quotes begins an escape sequence, and this one is unknown",
      fmt::format("use single quotes: {}'{}'; or write \\\\ for each backslash", key, escaped(path, 200))};
}

/// A string with a control character, or text behind it.
TomlMistake mistake_of_string(const KeyAndValue& kv, std::string_view reported) {
  const std::string key = escaped(kv.key, 60);
  if (says(reported, "control characters"))
    return {"a control character in a string", "remove it, or write it as \\u0000 with its code"};
  return {"text follows the string",
          fmt::format("write several strings as a list: {} = [\"A\", \"B\"]", key)};
}

TomlMistake mistake_of_number(const KeyAndValue& kv, std::string_view reported) {
  const std::string value = escaped(kv.value, 60);
  // Only the parser knows the range of a number; everything else is visible in its characters.
  if (says(reported, "representable"))
    return {fmt::format("{} does not fit in 64 bits", value), "write a number of at most 18 digits"};
  const std::string what = fmt::format("'{}' is no number in TOML", value);
  // "1,000" or "1, 2": a thousands separator and a list without brackets look alike.
  if (kv.value.find(',') != kv.value.npos) return {what, "write numbers without separators, lists in []"};
  const std::size_t point = kv.value.find('.');
  const auto digit_at = [&](std::size_t at) {
    return at < kv.value.size() && kDigits.find(kv.value[at]) != kDigits.npos;
  };
  if (point != kv.value.npos && !(point > 0 && digit_at(point - 1) && digit_at(point + 1)))
    return {what, "write digits on both sides of the decimal point"};
  if (kv.value.size() > 1 && kv.value.front() == '0' && digit_at(1))
    return {what, "remove the leading zeros"};
  return {what, "write a number as 8, 0.5 or 3e-4"};
}

/// True if the parser stopped at the beginning of a value, not between two of them: a word without quotes in
/// a list or a table in braces.
bool is_at_value(std::string_view reported) {
  return says(reported, "could not determine value type") || says(reported, "parsing boolean") ||
         says(reported, "parsing floating-point") || says(reported, "parsing value");
}

TomlMistake mistake_of_list(std::string_view key, std::string_view reported) {
  const std::string list = key.empty() ? "" : escaped(key, 60) + " = ";
  if (is_at_value(reported))
    return {"an item of the list is no value in TOML",
            fmt::format("write strings in quotes: {}[\"A\", \"B\"]", list)};
  if (says(reported, "saw comma"))
    return {"two commas in the list without an item between them", "remove one of them"};
  return {"the list has no ',' between two items, or is not closed",
          "separate the items of a list by commas, and end it with ]"};
}

TomlMistake mistake_of_braces(std::string_view reported) {
  if (says(reported, "dangling comma") || says(reported, "saw comma"))
    return {"a ',' without an entry behind it in { }", "remove the comma"};
  if (says(reported, "expected '='"))
    return {"an entry in { } has no '='", "write '=' between key and value: { KEY = VALUE }"};
  if (is_at_value(reported))
    return {"a value in { } is no value in TOML", "write strings in quotes: { KEY = \"VALUE\" }"};
  return {"the table in { } is not closed in its line, or has no ',' between two entries",
          "separate the entries of { } by commas, and end them with } in the same line"};
}

TomlMistake mistake_of_value(const KeyAndValue& kv, std::string_view reported) {
  const std::string key = escaped(kv.key, 60);
  if (kv.key.empty()) return {"no key before '='", "write a key before '='"};
  if (kv.value.empty())
    return {fmt::format("{} has no value", key), fmt::format("write a value after '=', or remove {}", key)};
  const char first = kv.value.front(), last = kv.value.back();
  if (kv.value.size() > 1 && (last == ';' || last == ',') &&
      (is_behind_value(reported) || (first != '[' && first != '{')))
    return {fmt::format("'{}' behind the value", last), fmt::format("remove the '{}'", last)};
  // The first character decides what the value was meant to be.
  if (first == '"' || first == '\'') return mistake_of_string(kv, reported);
  if (is_behind_value(reported) && (first == '[' || first == '{'))
    return {"text follows the value", "write one KEY = VALUE per line"};
  if (first == '[') return mistake_of_list(kv.key, reported);
  if (first == '{') return mistake_of_braces(reported);
  if (first == '=')
    return {fmt::format("two '=' behind {}", key), fmt::format("write one '=': {} = VALUE", key)};
  if (kv.value.find('=') != kv.value.npos)
    return {"the line sets two keys", "write one KEY = VALUE per line"};
  if (is_one_of(kv.value, {"true", "false", "yes", "no", "on", "off"}))
    return {fmt::format("'{}' is no value in TOML", kv.value), "write true or false"};
  // What consists of digits, signs, points and exponents was meant as a number.
  if (kv.value.find_first_not_of("0123456789+-._,eExXoObB ") == kv.value.npos &&
      kv.value.find_first_of(kDigits) != kv.value.npos)
    return mistake_of_number(kv, reported);
  if (kv.value.find('"') != kv.value.npos)
    return {"only a part of the value is in quotes", "write the whole value in quotes"};
  // In double quotes a backslash would begin an escape sequence.
  const char quote = kv.value.find('\\') != kv.value.npos ? '\'' : '"';
  return {"a string without quotes",
          fmt::format("write strings in quotes: {} = {}{}{}", key, quote, escaped(kv.value, 60), quote)};
}

TomlMistake mistake_of_header(std::string_view line, std::string_view reported) {
  // The line without its "[" and its comment.
  const std::string_view name = trimmed(line.substr(0, line.find('#'))).substr(1);
  const std::string_view word = trimmed(name.substr(0, name.find_first_of("] \t[")));
  if (word.empty()) return {"the table header has no name", "write the name of a table: [train]"};
  return {is_behind_value(reported) ? "text follows the table header" : "the table header has no ]",
          fmt::format("write the table header alone in its line: [{}]", escaped(word, 60))};
}

TomlMistake missing_equals(std::string_view key, const char* what) {
  return {fmt::format("{} key '{}'", what, escaped(key, 60)),
          fmt::format("write '=' between key and value: {} = VALUE", escaped(key, 60))};
}

}  // namespace

std::string_view line_of_toml(std::string_view text, std::uint32_t line) {
  for (; line > 1; --line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  return trimmed(text.substr(0, text.find('\n')));
}

TomlMistake toml_mistake(std::string_view text, std::uint32_t line_number, std::string_view reported) {
  const std::string_view line = line_of_toml(text, line_number);
  const std::size_t equals = line.find('='), colon = line.find(':');
  if (is_escape(reported)) return mistake_of_escape(line);
  // "[train" is a header, ["a.txt"] may be a line of a list.
  if (line.starts_with('[') && says(reported, "table header")) return mistake_of_header(line, reported);
  if (line.starts_with('[') && is_behind_value(reported) && says(reported, "root table"))
    return mistake_of_header(line, reported);
  // Comments of other languages; before the search for "=", which a comment may contain.
  if (line.starts_with("//") || line.starts_with("/*") || line.starts_with(';'))
    return {"a comment of another language", "begin a comment with #"};
  if (says(reported, "redefine")) return {"", "remove one of the two lines"};
  if (colon != line.npos && (equals == line.npos || colon < equals) && !says(reported, "array"))
    return missing_equals(trimmed(line.substr(0, colon)), "':' instead of '=' behind the");
  // A list that begins in an earlier line.
  const KeyAndValue kv = equals == line.npos ? KeyAndValue{} : split(line);
  if ((says(reported, "array") && !kv.value.starts_with('[')) ||
      (kv.key.empty() && is_at_value(reported) && equals == line.npos))
    return mistake_of_list({}, reported);
  if (equals != line.npos) return mistake_of_value(kv, reported);
  if (says(reported, "expected '='") && !line.empty())
    return missing_equals(line.substr(0, line.find_first_of(kSpace)), "no '=' behind the");
  return {"", "each line is a [TABLE], KEY = VALUE or a # comment; `trainhost init` writes an example"};
}

}  // namespace trainhost::runfile
