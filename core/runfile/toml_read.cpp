// Reads TOML with toml++, whose assertions throw (core/base/toml_fence.hpp), so that a malformed file ends in
// an error message. Results are plain values; no toml++ type leaves this file.
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

toml::table parse(const std::string& text, const std::string& name) {
  guard_toml(text, name);
  try {
    return toml::parse(std::string_view(text));
  } catch (const toml::parse_error& e) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool json = first != std::string::npos && text[first] == '{';
    const bool ended = e.description().find("end-of-file") != std::string_view::npos;
    throw usage_error("not valid TOML: " + escaped(e.description(), 400),
                      json    ? "pass a model's config.json with --model=FILE"
                      : ended ? "the file is incomplete: finish it, or copy it again"
                              : toml_remedy(text, e.source().begin.line, e.description()),
                      where_of(e.source(), name));
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
