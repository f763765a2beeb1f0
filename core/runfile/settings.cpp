// Collects and checks settings key by key; see settings.hpp. Invariant: every value in values_ has passed
// validate_value() of its schema row, so the typed accessors convert without checking.
#include "core/runfile/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <unordered_map>

#include "core/base/text.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/suggest.hpp"
#include "core/runfile/toml_read.hpp"

namespace trainhost::runfile {
namespace {

constexpr std::string_view kPluginPrefix = "plugin.", kEstimatorsPrefix = "memory.estimators.";

/// The suggestion looks at keys and tables alike: a misspelt table is reported as such.
[[noreturn]] void reject_unknown(const std::string& key, bool table, const Where& where) {
  throw usage_error(
      fmt::format("unknown {} '{}'{}", table ? "table" : "key", escaped(key, 120), suggest_key(key)), {},
      where);
}

/// Types for which a number without quotes on the command line may be meant as text.
bool accepts_text(Type t) {
  return t == Type::kText || t == Type::kPath || t == Type::kChoice || t == Type::kTexts ||
         t == Type::kPaths || t == Type::kSize;
}

/// True for digits with an optional sign. Such a text is a number of more than 64 bits if TOML rejected it.
bool all_digits(std::string_view text) {
  const std::size_t sign = text.starts_with('-') || text.starts_with('+');
  return text.size() > sign && text.find_first_not_of("0123456789_", sign) == text.npos;
}

std::unordered_map<const Key*, Value> parse_defaults() {
  std::unordered_map<const Key*, Value> parsed;
  for (const Key& key : schema()) {
    if (*key.default_toml) parsed.emplace(&key, read_toml_value(key.default_toml, {}).value());
  }
  return parsed;
}

/// The key's default. All are parsed once, because a search resolves hundreds of runs. Not per thread: glibc
/// ends the process if it has no memory to register the destructor of a thread-local variable.
const Value& default_value(const Key& key) {
  static const std::unordered_map<const Key*, Value> parsed = parse_defaults();
  return parsed.at(&key);
}

/// "q_proj,v_proj": the texts between the commas.
Value list_of_texts(const Value& v) {
  Value list;
  list.kind = Value::Kind::kList, list.where = v.where;
  for (std::size_t begin = 0; begin <= v.text.size();) {
    const std::size_t end = std::min(v.text.find(',', begin), v.text.size());
    const std::size_t first = std::min(v.text.find_first_not_of(' ', begin), end);
    const std::size_t last = v.text.find_last_not_of(' ', end - 1);
    list.items.push_back(text_value(v.text.substr(first, end == first ? 0 : last + 1 - first), v.where));
    begin = end + 1;
  }
  return list;
}

}  // namespace

/// File first, overrides after: the last value of a key wins.
Settings::Settings(std::string file, const std::vector<Entry>& entries,
                   const std::vector<Override>& overrides, std::vector<RunFileError>* errors)
    : file_(std::move(file)), errors_(errors) {
  for (const Entry& e : entries) set_key(e.key, [&] { add(e); });
  for (const Override& o : overrides) set_key(o.key, [&] { add_override(o); });
}

/// Runs set(), which sets `key` or throws an Error.
template <class F>
void Settings::set_key(const std::string& key, F&& set) {
  if (!errors_) return set();
  for (const auto& [table, nearest] : unknown_tables_)
    if (key.starts_with(table + ".")) {
      meant_.push_back(nearest + key.substr(table.size()));
      return;  // the error of the table is enough
    }
  if (below_invalid(key)) return;
  try {
    set();
  } catch (const Error& error) {
    RunFileError found{error, key};
    invalid_.push_back(key);
    const bool known = find_key(key) || is_table(key) || key.starts_with(kPluginPrefix) ||
                       key.starts_with(kEstimatorsPrefix);
    if (!known) {
      found.nearest_key = nearest_key(key);
      meant_.push_back(found.nearest_key);
      unknown_tables_[key] = found.nearest_key;
    }
    errors_->push_back(std::move(found));
  }
}

void Settings::collect(const Error& e) const {
  state_.failed = true;
  // Rules that were run twice report once.
  const auto same = [&](const RunFileError& other) { return other.error.full() == e.full(); };
  if (!state_.read_invalid && std::none_of(errors_->begin(), errors_->end(), same)) errors_->push_back({e});
}

/// Whether a table that contains `key` has an error.
bool Settings::below_invalid(const std::string& key) const {
  return std::any_of(invalid_.begin(), invalid_.end(),
                     [&](const std::string& name) { return key.starts_with(name + "."); });
}

void Settings::note_read(const std::string& key) const {
  state_.read_invalid |= below_invalid(key) || std::find(meant_.begin(), meant_.end(), key) != meant_.end() ||
                         std::any_of(invalid_.begin(), invalid_.end(), [&](const auto& name) {
                           return name == key || name.starts_with(key + ".");
                         });
}

/// Tables are remembered, because [lora] has a meaning without keys.
void Settings::add(const Entry& e) {
  if (e.key.starts_with(kPluginPrefix)) return add_plugin(e);
  if (e.key.starts_with(kEstimatorsPrefix)) return add_family_estimators(e);
  const Key* key = find_key(e.key);
  const bool table = is_table(e.key);
  if (!key && !table) reject_unknown(e.key, e.value.kind == Value::Kind::kTable, e.key_where);
  if (table && e.value.kind != Value::Kind::kTable)
    throw usage_error(fmt::format("{0} = {1}: expected the table [{0}], got {2}", e.key, written(e.value),
                                  kind_name(e.value)),
                      {}, e.value.where);
  if (table) {
    tables_.push_back(e.key);
    return;
  }
  validate_value(*key, e.value);
  values_[e.key] = e.value;
}

/// A value has the type of memory.estimator. Whether the family exists is checked when the model is known.
void Settings::add_family_estimators(const Entry& e) {
  const Key* same_type = find_key("memory.estimator");
  assert(same_type);
  Key key = *same_type;
  key.name = e.key.c_str();
  validate_value(key, e.value);
  family_estimators_[e.key.substr(kEstimatorsPrefix.size())] = e.value;
}

/// Options of plugins are scalars in one level. Their names and values are checked when the plugin is known.
void Settings::add_plugin(const Entry& e) {
  const std::string rest = e.key.substr(kPluginPrefix.size());
  const auto dot = rest.find('.');
  const bool table = e.value.kind == Value::Kind::kTable;
  if (dot == rest.npos) {
    if (table) return;
    throw usage_error(fmt::format("plugin.{} = {}: expected a table of plugin options, got {}", rest,
                                  written(e.value), kind_name(e.value)),
                      fmt::format("write the options below [plugin.{}]", rest), e.value.where);
  }
  const bool finite = e.value.kind != Value::Kind::kNumber || std::isfinite(e.value.number);
  if (table || !finite || e.value.kind == Value::Kind::kList || e.value.kind == Value::Kind::kOther ||
      rest.find('.', dot + 1) != rest.npos)
    throw usage_error(fmt::format("{} = {}: expected a string, a number, true or false, got {}", e.key,
                                  written(e.value), kind_name(e.value)),
                      {}, e.value.where);
  plugin_values_[rest] = e.value;
}

/// The value is TOML, or text if it is not valid TOML, so that quotes may be omitted on the command line; a
/// list of texts may be written with commas alone.
void Settings::add_override(const Override& o) {
  if (o.key.empty()) throw usage_error("the key is missing", "example: --set train.micro_batch=8", {"--set"});
  const Where where = !o.where.file.empty() ? o.where : Where{o.option.empty() ? "--set " + o.key : o.option};
  const Key* key = find_key(o.key);
  const bool plugin = o.key.starts_with(kPluginPrefix);
  if (!key && !plugin && is_table(o.key))
    throw usage_error(fmt::format("'{}' is a table: set one of its keys", o.key),
                      "example: --set train.micro_batch=8", where);
  Value v = read_toml_value(o.value, where).value_or(text_value(o.value, where));
  const bool scalar = v.kind != Value::Kind::kText && v.kind != Value::Kind::kList;
  if (key && scalar && accepts_text(key->type))
    v = text_value(o.value, where);  // output.dir=2024 is a folder name
  const bool typed = o.where.file.empty() && v.kind == Value::Kind::kText;
  if (key && key->type == Type::kTexts && typed && v.text.find(',') != v.text.npos) {
    v = list_of_texts(v);
    if (std::ranges::any_of(v.items, &std::string::empty, &Value::text))
      throw usage_error(fmt::format("{} = {}: an item of the list is empty", o.key, escaped(o.value, 80)),
                        "leave the comma out", where);
  }
  if (v.kind == Value::Kind::kText) v.text = canonical_name(o.key, v.text);
  // More than 64 bits: TOML rejects it as a number, and as text the message would be misleading.
  if (key && !accepts_text(key->type) && v.kind == Value::Kind::kText && all_digits(o.value))
    reject_digits(*key, o.value, where);
  overridden_[o.key] = true;
  try {
    add({o.key, where, v});
  } catch (const Error& e) {
    // A key of a framework's file, which the user has written: "micro_batch_size means train.micro_batch =
    // ...".
    if (o.where.file.empty() || o.option.empty() || o.option == o.key) throw;
    throw Error(e.code(), o.option + " means " + e.what(), e.hint(), e.where());
  }
}

/// For --model, which acts like a key of the file. The key is a literal of the program.
void Settings::set(const std::string& key, Value v) {
  assert(find_key(key) != nullptr);
  validate_value(*find_key(key), v);
  values_[key] = std::move(v);
}

bool Settings::table_given(const std::string& table) const {
  note(table);
  if (std::find(tables_.begin(), tables_.end(), table) != tables_.end()) return true;
  return std::any_of(values_.begin(), values_.end(),
                     [&](const auto& kv) { return kv.first.starts_with(table + "."); });
}

Where Settings::where(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? Where{file_} : found->second.where;
}

/// An unset key without default has kind kNull; accessors then return 0, "" or an empty list.
const Value& Settings::value(const std::string& key) const {
  note(key);
  static const Value unset;
  if (const auto found = values_.find(key); found != values_.end()) return found->second;
  const Key* k = find_key(key);
  return k && *k->default_toml ? default_value(*k) : unset;
}

/// A key that accepts a string or a list always reads as a list.
std::vector<Value> Settings::list(const std::string& key) const {
  const Value& v = value(key);
  if (v.kind == Value::Kind::kNull) return {};
  if (v.kind == Value::Kind::kList) return v.items;
  return {v};
}

/// Sizes may be text with a unit or a number; validate_size() has accepted only whole, positive values.
std::optional<std::uint64_t> Settings::size(const std::string& key) const {
  const Value& v = value(key);
  if (v.kind == Value::Kind::kText) return parse_size(v.text);
  if (v.kind == Value::Kind::kInteger) return static_cast<std::uint64_t>(v.integer);
  if (v.kind == Value::Kind::kNumber) return static_cast<std::uint64_t>(v.number);
  return std::nullopt;
}

}  // namespace trainhost::runfile
