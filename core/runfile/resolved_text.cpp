// The run file with every key that has a value, as it is kept in the folder of a run: what was given, what an
// option of the command line changed, and the defaults. Paths are absolute, so that the text means the same
// in any folder.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/json_value.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/settings.hpp"

namespace trainhost::runfile {
namespace {

/// A basic string of TOML. JSON's escapes are a subset of TOML's.
std::string toml_string(const std::string& text) { return json_string(text); }

}  // namespace

std::string toml_value(const Value& v) {
  switch (v.kind) {
    case Value::Kind::kText:
      return toml_string(v.text);
    case Value::Kind::kInteger:
      return std::to_string(v.integer);
    case Value::Kind::kNumber: {
      const std::string digits = fmt::format("{}", v.number);
      // 1 would be read as a whole number.
      return digits.find_first_of(".einf") == digits.npos ? digits + ".0" : digits;
    }
    case Value::Kind::kBool:
      return v.boolean ? "true" : "false";
    case Value::Kind::kList: {
      std::string out;
      for (const Value& item : v.items) out += (out.empty() ? "" : ", ") + toml_value(item);
      return "[" + out + "]";
    }
    case Value::Kind::kNull:
    case Value::Kind::kTable:
    case Value::Kind::kOther:
      break;
  }
  assert(!"no key of the schema has a value of this kind");
  return "\"\"";
}

namespace {

/// A key of [plugin.NAME] or [memory.estimators], quoted only where TOML demands it.
std::string plugin_key(const std::string& name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? name : toml_string(name);
}

/// A path as the run resolved it. "bytes" and "auto" are no files, nor is the text of a config.json.
Value absolute_path(const Key& key, Value v, const std::filesystem::path& base) {
  for (Value& item : v.items) item = absolute_path(key, item, base);
  const bool is_word =
      std::string_view(key.name) == "data.tokenizer" && (v.text == "bytes" || v.text == "auto");
  const bool is_text = std::string_view(key.name) == "model.config" && is_config_text(v.text);
  if (v.kind == Value::Kind::kText && !is_word && !is_text) v.text = resolve_path(v.text, base).string();
  return v;
}

bool holds_paths(const Key& key) {
  return key.type == Type::kPath || key.type == Type::kPaths ||
         std::string_view(key.name) == "data.tokenizer";
}

std::string line_of(const Settings& s, const Key& key, std::string_view name,
                    const std::filesystem::path& base) {
  const auto given = s.values().find(key.name);
  // As a comment: a default that is written out would count as given, and may conflict with another key.
  if (given == s.values().end())
    return *key.default_toml ? fmt::format("# {} = {}\n", name, key.default_toml) : "";
  const Value v = holds_paths(key) ? absolute_path(key, given->second, base) : given->second;
  const std::string assignment = fmt::format("{} = {}", name, toml_value(v));
  if (!s.overridden(key.name)) return assignment + "\n";
  const Where& from = given->second.where;  // a line: the value is from a file of another framework
  return fmt::format("{:<40} # {}\n", assignment,
                     from.line                     ? fmt::format("{}:{}", from.file, from.line)
                     : from.file.starts_with("--") ? "command line"
                                                   : from.file);
}

}  // namespace

std::string resolved_text(const Settings& s, const std::filesystem::path& base) {
  std::string out =
      "# The run file of this run, with absolute paths. Keys after # have their default. `trainhost "
      "run.toml` trains\n"
      "# the same model.\n";
  for (const Table& t : tables()) {
    const std::string_view table = t.name;
    if (table.find('.') != table.npos || table == "plugin") continue;
    if (table == "lora" && !s.table_given("lora")) continue;  // its presence switches to adapters
    const std::string prefix = std::string(table) + ".";
    std::string lines;
    for (const Key& k : schema())
      if (const std::string_view name = k.name; name.starts_with(prefix))
        lines += line_of(s, k, name.substr(prefix.size()), base);
    if (!lines.empty()) out += fmt::format("\n[{}]\n{}", table, lines);
  }
  if (!s.family_estimators().empty()) out += "\n[memory.estimators]\n";
  for (const auto& [family, v] : s.family_estimators())
    out += fmt::format("{} = {}\n", plugin_key(family), toml_value(v));
  std::string plugin;
  for (const auto& [name, v] : s.plugin_values()) {  // "NAME.key", sorted, so that each table is written once
    const auto dot = name.find('.');
    if (const std::string owner = name.substr(0, dot); owner != plugin)
      out += fmt::format("\n[plugin.{}]\n", plugin_key(plugin = owner));
    out += fmt::format("{} = {}\n", plugin_key(name.substr(dot + 1)), toml_value(v));
  }
  return out;
}

/// Defaults are comments. A table is written before its first key, so that no table is empty.
std::string without_defaults(const std::string& resolved) {
  std::string out, table;
  for (std::size_t at = 0, end; at < resolved.size(); at = end + 1) {
    end = std::min(resolved.find('\n', at), resolved.size());
    const std::string line = resolved.substr(at, end - at);
    if (line.starts_with('['))
      table = (out.empty() ? "" : "\n") + line + "\n";
    else if (!line.empty() && !line.starts_with('#'))
      out += std::exchange(table, {}) + line + "\n";
  }
  return out;
}

}  // namespace trainhost::runfile
