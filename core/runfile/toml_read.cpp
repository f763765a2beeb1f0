// Reads TOML with toml++, whose assertions throw (core/base/toml_fence.hpp), so that a malformed file ends in
// an error message. Results are plain values; no toml++ type leaves this file.
#include <fmt/format.h>

#include "core/base/toml_fence.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/runfile/toml_guard.hpp"
#include "core/runfile/toml_read.hpp"
#include "core/runfile/toml_remedy.hpp"

namespace trainhost::runfile {
namespace {

Where where_of(const toml::source_region& region, const std::string& name) {
  return {name, region.begin.line, region.begin.column};
}

/// Keys contain only letters, digits, '_' and '-': a quoted key that contains a dot must not be taken for a
/// dotted key.
bool is_plain_word(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

/// Depth is bounded by guard_toml(). The members of a table become entries of their own in flatten().
Value to_value(const toml::node& node, const std::string& name) {
  Value v;
  v.where = where_of(node.source(), name);
  if (const auto* s = node.as_string()) {
    v.kind = Value::Kind::kText;
    v.text = s->get();
  } else if (const auto* i = node.as_integer()) {
    v.kind = Value::Kind::kInteger;
    v.integer = i->get();
    v.number = static_cast<double>(v.integer);
  } else if (const auto* f = node.as_floating_point()) {
    v.kind = Value::Kind::kNumber;
    v.number = f->get();
  } else if (const auto* b = node.as_boolean()) {
    v.kind = Value::Kind::kBool;
    v.boolean = b->get();
  } else if (const auto* a = node.as_array()) {
    v.kind = Value::Kind::kList;
    for (const toml::node& item : *a) v.items.push_back(to_value(item, name));
  } else if (node.is_table()) {
    v.kind = Value::Kind::kTable;
  } else {
    v.kind = Value::Kind::kOther;
    v.text = "a date or time";
  }
  return v;
}

/// toml++ keeps tables sorted by key; sort_by_position() restores the order of the file.
void flatten(const toml::table& table, const std::string& prefix, const std::string& name,
             std::vector<Entry>& out, std::vector<RunFileError>* errors) {
  for (const auto& [key, node] : table) {
    const std::string_view word = key.str();
    const std::string path = prefix + std::string(word);
    // "*": every other family in [memory.estimators]
    if (!is_plain_word(word) && path != "memory.estimators.*") {
      const Error error =
          usage_error("unknown key '" + escaped(path) + "'",
                      "a key contains only letters, digits, '_' and '-'", where_of(key.source(), name));
      if (!errors) throw error;
      errors->push_back({error, path});
      continue;
    }
    out.push_back({path, where_of(key.source(), name), to_value(node, name)});
    if (const auto* inner = node.as_table()) flatten(*inner, path + ".", name, out, errors);
  }
}

/// Sorts by file position, so that the first mistake in the file is reported.
void sort_by_position(std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.key_where.line, a.key_where.column) < std::pair(b.key_where.line, b.key_where.column);
  });
}

bool fails_assertion(std::string_view text) {
  try {
    (void)toml::parse(text);
  } catch (const TomlAssertion&) {
    return true;
  } catch (const toml::parse_error&) {
  }
  return false;
}

/// A toml++ assertion has no position. toml++ parses a text from its start to its end, so the shortest prefix
/// of whole lines that fails ends with the line in question. Bisection: about log2(lines) more parses, and
/// only after such a failure.
std::uint32_t line_of_assertion(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] == '\n' || at + 1 == text.size()) ends.push_back(at + 1);
  const auto line = std::partition_point(
      ends.begin(), ends.end(), [&](std::size_t end) { return !fails_assertion(text.substr(0, end)); });
  return static_cast<std::uint32_t>(line - ends.begin()) + 1;
}

/// The lines of `text` before line `line`, from 1.
std::string_view lines_before(std::string_view text, std::uint32_t line) {
  std::size_t at = 0;
  for (; line > 1; --line) {
    const std::size_t end = text.find('\n', at);
    if (end == text.npos) break;
    at = end + 1;
  }
  return text.substr(0, at);
}

/// A key or a table that is defined twice: the lines before the error, which the parser has read, have the
/// first definition. `reported` has the name in quotes.
Error redefinition(std::string_view text, const std::string& name, std::uint32_t line,
                   std::string_view reported) {
  const std::size_t begin = reported.find('\''), end = reported.rfind('\'');
  const std::string word(reported.substr(begin + 1, end - begin - 1));
  std::vector<Entry> known;
  std::vector<RunFileError> ignored;
  try {
    flatten(toml::parse(lines_before(text, line)), "", name, known, &ignored);
  } catch (const toml::parse_error&) {  // the line is a part of a list
  }
  sort_by_position(known);
  const auto begins_with_bracket = [&](std::uint32_t at) { return line_of_toml(text, at).starts_with('['); };
  const bool header = begins_with_bracket(line);
  std::string key = word;
  if (!header)  // relative to the table of the line
    for (const Entry& e : known)
      if (e.value.kind == Value::Kind::kTable && begins_with_bracket(e.key_where.line))
        key = e.key + "." + word;
  const auto first = std::ranges::find(known, key, &Entry::key);
  const std::string shown = escaped(key, 200);
  const std::string where =
      first == known.end() ? "" : fmt::format(", first in line {}", first->key_where.line);
  const Where at{name, line, 1};
  if (!header)
    return usage_error(fmt::format("not valid TOML: {} is set twice{}", shown, where),
                       "remove one of the two lines", at);
  if (first != known.end() && first->value.kind != Value::Kind::kTable)
    return usage_error(fmt::format("not valid TOML: {} has a value in line {}, and is no table", shown,
                                   first->key_where.line),
                       "remove one of the two lines", at);
  if (first != known.end() && !begins_with_bracket(first->key_where.line))
    return usage_error(
        fmt::format("not valid TOML: line {} has defined the table [{}] already, by a dotted key",
                    first->key_where.line, shown),
        fmt::format("move that line below [{0}], without '{0}.'", shown), at);
  return usage_error(fmt::format("not valid TOML: the table [{}] is defined twice{}", shown, where),
                     fmt::format("move the keys of both tables [{}] into one", shown), at);
}

Error syntax_error(std::string_view text, const std::string& name, const toml::parse_error& e,
                   const std::optional<OpenString>& open) {
  const std::string_view reported = e.description();
  const Where where = where_of(e.source(), name);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && text[first] == '{')
    return usage_error("not valid TOML: the text begins with '{', as JSON does",
                       "pass a model's config.json with --model=FILE", where);
  const auto says = [&](std::string_view words) { return reported.find(words) != reported.npos; };
  // The parser stops at the end of the line, or of the file.
  if (open && open->line <= where.line && says("string:"))
    return usage_error(
        "not valid TOML: the string that begins here is not closed",
        fmt::format("end it with {}{}", open->quotes, open->quotes.size() == 1 ? " in the same line" : ""),
        {name, open->line, open->column});
  if (says("end-of-file"))
    return usage_error("not valid TOML: the file ends within a value or a table header",
                       "finish it, or copy the file again", where);
  if (says("cannot redefine existing") && says("'"))
    return redefinition(text, name, where.line, reported);
  TomlMistake mistake = toml_mistake(text, where.line, reported);
  if (mistake.what.empty()) mistake.what = escaped(reported, 400);
  return usage_error("not valid TOML: " + mistake.what, mistake.remedy, where);
}

toml::table parse(const std::string& text, const std::string& name) {
  const std::optional<OpenString> open = guard_toml(text, name);
  try {
    return toml::parse(std::string_view(text));
  } catch (const toml::parse_error& e) {
    throw syntax_error(text, name, e, open);
  } catch (const TomlAssertion&) {
    throw usage_error("not valid TOML", "look for an unfinished key, table header or value",
                      {name, line_of_assertion(text)});
  }
}

}  // namespace

std::vector<Entry> read_toml(const std::string& text, const std::string& name,
                             std::vector<RunFileError>* errors) {
  std::vector<Entry> out;
  flatten(parse(text, name), "", name, out, errors);
  sort_by_position(out);
  return out;
}

/// True for text that is not a TOML value: it begins with a letter, or with '/', and with no TOML keyword
/// ("org/model"), or it is a word that begins with a digit and has a letter that no number, date or time has
/// (24GiB). Saves the cost of an exception for the most common kinds of override.
static bool is_bare_word(const std::string& text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (is_letter(text[0]) || text[0] == '/')
    return !text.starts_with("true") && !text.starts_with("false") && !text.starts_with("inf") &&
           !text.starts_with("nan");
  const bool digit = text[0] >= '0' && text[0] <= '9';
  return digit && is_plain_word(text) && text.find_first_of("ghijklmnpqrsuvwyGHIJKLMNPQRSUVWXY") != text.npos;
}

/// The text between the quotes of a basic string without escapes; printable ASCII only.
static std::optional<std::string_view> plain_string(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (!std::ranges::all_of(text, is_plain)) return std::nullopt;
  return text;
}

/// True for a whole number in TOML that std::stoll() reads alike: without sign, underscores, leading zeros.
static bool is_plain_integer(const std::string& text) {
  constexpr std::size_t kMostDigits = 18;  // of 19 digits some exceed 64 bits
  return text.size() <= kMostDigits && text.find_first_not_of("0123456789") == text.npos &&
         (text[0] != '0' || text.size() == 1);
}

std::optional<Value> read_toml_value(const std::string& text, const Where& where) {
  if (text.empty() || is_bare_word(text) || text.find_first_of("\r\n") != text.npos) return std::nullopt;
  if (is_plain_integer(text)) {
    Value v;
    v.kind = Value::Kind::kInteger;
    v.integer = std::stoll(text);
    v.number = static_cast<double>(v.integer);
    v.where = where;
    return v;
  }
  if (const auto plain = plain_string(text)) {
    Value v;
    v.kind = Value::Kind::kText;
    v.text = *plain;
    v.where = where;
    return v;
  }
  if (text == "true" || text == "false") {
    Value v;
    v.kind = Value::Kind::kBool;
    v.boolean = text == "true";
    v.where = where;
    return v;
  }
  try {
    // The text has one line, so the table has one key.
    const toml::table table = parse("x = " + text, where.file);
    Value v = to_value(table.at("x"), where.file);
    v.where = where;
    for (Value& item : v.items) item.where = where;
    return v;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace trainhost::runfile
