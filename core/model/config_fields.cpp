// Typed fields of a config.json; see config_fields.hpp. Two views of a field: `present` counts null, which
// some classes of transformers distinguish from an absent field; `given` does not. Configs come from
// anywhere: every value is checked for type and range before it is used.
#include "core/model/config_fields.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"

namespace trainhost::model {

namespace {

using Kind = JsonValue::Kind;

/// True for a value that means the same as an absent field.
/// Such a field needs no note: it adds no parameters.
bool means_absent(const JsonValue& v) {
  return v.is_null() || (v.kind == Kind::kBool && !v.boolean) || (v.is_string() && v.string.empty()) ||
         (v.is_array() && v.elements.empty()) || (v.is_object() && v.members.empty());
}

// At most INT32_MAX, so that a sum or product of two counts cannot overflow 64 bits.
bool is_count(const JsonValue& v, std::uint32_t least) {
  return v.kind == Kind::kInteger && v.integer >= least && v.integer <= INT32_MAX;
}

}  // namespace

// `text` is shared with the nested objects: positions of JsonValue refer to the whole config.
struct ConfigFields::Data {
  std::shared_ptr<const std::string> text;  // of the whole config
  JsonValue json;
  std::string prefix;
  std::set<std::string, std::less<>> read;  // names that were asked for
  std::map<std::string, std::unique_ptr<ConfigFields>, std::less<>> objects;

  const JsonValue* find(std::string_view name) {
    // Also when absent: a reader that asks for a field understands it.
    read.emplace(name);
    const JsonValue* v = json.find(name);
    return !v || v->is_null() ? nullptr : v;
  }
  /// Marks all names as read, so that a second spelling of the same field is not reported as unknown.
  std::pair<std::string, const JsonValue*> first(FieldNames names) {
    std::pair<std::string, const JsonValue*> found{std::string(*names.begin()), nullptr};
    for (std::string_view name : names)
      if (const JsonValue* v = find(name); v && !found.second) found = {std::string(name), v};
    return found;
  }
  /// The value as it is written in the config, without white space outside strings, shortened.
  /// The characters are taken from the config, so that a number appears as the user wrote it (1e3, not 1000).
  std::string shown(const JsonValue& v) const {
    std::string out;
    bool in_string = false;
    for (std::uint64_t i = v.begin; i < v.end; ++i) {
      // An escaped character, which may be a quote that does not end the string.
      const char c = (*text)[i];
      if (c == '\\' && in_string) {
        out += c;
        if (++i < v.end) out += (*text)[i];
        continue;
      }
      if (c == '"') in_string = !in_string;
      if (in_string || (c != ' ' && c != '\n' && c != '\r' && c != '\t')) out += c;
    }
    return escaped(out, 60);
  }
};

ConfigFields::ConfigFields(std::string_view json) : data_(std::make_unique<Data>()) {
  // The config is data of the user: errors of the parser become usage errors with the file's usual name.
  data_->text = std::make_shared<const std::string>(json);
  try {
    data_->json = parse_json(json);
  } catch (const JsonError& e) {
    throw usage_error(std::string("config.json: not valid JSON: ") + e.what());
  }
  if (!data_->json.is_object())
    throw usage_error("config.json: expected a JSON object with the model's fields");
}

ConfigFields::ConfigFields(std::unique_ptr<Data> data) : data_(std::move(data)) {}
ConfigFields::~ConfigFields() = default;

void ConfigFields::fail(std::string_view name, const std::string& message, const std::string& hint) const {
  throw usage_error(data_->prefix + std::string(name) + " " + message, hint);
}

bool ConfigFields::present(std::string_view name) const { return data_->json.find(name) != nullptr; }

std::string_view ConfigFields::name_in_use(FieldNames names) const {
  for (const std::string_view name : names)
    if (given(name)) return name;
  return *names.begin();
}

bool ConfigFields::given(std::string_view name) const {
  const JsonValue* v = data_->json.find(name);
  return v && !v->is_null();
}

std::uint32_t ConfigFields::number(FieldNames names, std::uint32_t fallback, std::uint32_t least) {
  const auto [name, v] = data_->first(names);
  if (!v) return fallback;
  // A fallback is not checked against `least`: 0 can mean "absent" to the caller.
  if (!is_count(*v, least))
    fail(name, "= " + data_->shown(*v) + ": expected a whole number from " + std::to_string(least) + " to " +
                   std::to_string(INT32_MAX));
  return static_cast<std::uint32_t>(v->integer);
}

std::uint32_t ConfigFields::size(FieldNames names, std::uint32_t fallback) {
  return number(names, fallback, 1);
}

// The field is looked up twice: here for the error about a missing field, then for its range.
std::uint32_t ConfigFields::size(FieldNames names) {
  const auto [name, v] = data_->first(names);
  if (!v) fail(name, "is missing", "it is required for every model of this family");
  return size(names, 0);
}

double ConfigFields::factor(FieldNames names, double fallback) {
  const auto [name, v] = data_->first(names);
  if (!v) return fallback;
  if ((v->kind != Kind::kNumber && v->kind != Kind::kInteger) || !(v->number > 0 && v->number <= INT32_MAX))
    fail(name, "= " + data_->shown(*v) + ": expected a positive number");
  return v->number;
}

bool ConfigFields::flag(FieldNames names, bool fallback) {
  const auto [name, v] = data_->first(names);
  if (!v) return fallback;
  if (v->kind != Kind::kBool) fail(name, "= " + data_->shown(*v) + ": expected true or false");
  return v->boolean;
}

std::string ConfigFields::text(FieldNames names, std::string_view fallback) {
  const auto [name, v] = data_->first(names);
  if (!v) return std::string(fallback);
  if (!v->is_string()) fail(name, "= " + data_->shown(*v) + ": expected a string");
  return v->string;
}

std::vector<std::string> ConfigFields::texts(std::string_view name) {
  std::vector<std::string> out;
  const JsonValue* v = data_->find(name);
  if (!v) return out;
  if (!v->is_array()) fail(name, "= " + data_->shown(*v) + ": expected a list");
  for (const JsonValue& item : v->elements) {
    if (!item.is_string()) fail(name, "has " + data_->shown(item) + ": expected strings");
    out.push_back(item.string);
  }
  return out;
}

std::vector<std::uint32_t> ConfigFields::numbers(std::string_view name) {
  std::vector<std::uint32_t> out;
  const JsonValue* v = data_->find(name);
  if (!v) return out;
  if (!v->is_array()) fail(name, "= " + data_->shown(*v) + ": expected a list");
  for (const JsonValue& item : v->elements) {
    if (!is_count(item, 0)) fail(name, "has " + data_->shown(item) + ": expected whole numbers");
    out.push_back(static_cast<std::uint32_t>(item.integer));
  }
  return out;
}

bool ConfigFields::is_list(std::string_view name) const {
  const JsonValue* v = data_->json.find(name);
  return v && v->is_array();
}

std::optional<std::uint32_t> ConfigFields::count_or_minus_one(std::string_view name) {
  const JsonValue* v = data_->find(name);
  if (!v || (v->kind == Kind::kInteger && v->integer == -1)) return std::nullopt;
  return number({name}, 0);
}

ConfigFields& ConfigFields::object(std::string_view name) {
  // One Fields per object: unread() must know what all callers have read from it. A null object reads as
  // empty.
  std::unique_ptr<ConfigFields>& made = data_->objects[std::string(name)];
  if (made) return *made;
  const JsonValue* v = data_->find(name);
  if (v && !v->is_object()) fail(name, "= " + data_->shown(*v) + ": expected an object");
  auto data = std::make_unique<Data>();
  data->text = data_->text;
  if (v) data->json = *v;
  // An absent object has no members, and all its fields are absent.
  data->json.kind = Kind::kObject;
  data->prefix = data_->prefix + std::string(name) + ".";
  made.reset(new ConfigFields(std::move(data)));
  return *made;
}

void ConfigFields::mark_as_read(std::string_view name) { data_->read.emplace(name); }

// Sorted within an object; objects follow in the order of their names. Nested values of an unread object are
// part of its own text.
std::vector<std::string> ConfigFields::unread_fields() const {
  std::vector<std::string> out;
  for (const JsonMember& m : data_->json.members)
    if (!means_absent(m.value) && !data_->read.contains(m.key) && !is_ignored_field(m.key))
      out.push_back(data_->prefix + escaped(m.key, 60) + " = " + data_->shown(m.value));
  std::sort(out.begin(), out.end());
  for (const auto& [name, inner] : data_->objects)
    for (std::string& s : inner->unread_fields()) out.push_back(std::move(s));
  return out;
}

}  // namespace trainhost::model
