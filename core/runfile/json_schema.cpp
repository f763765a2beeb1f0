// The JSON Schema of run files, from the same table as the parser and docs/run-file.md; for editors. Draft 4:
// Taplo (Even Better TOML) documents that draft, and since draft 6 the number 1.0 is an integer, which it is
// not in TOML. Rules for several keys, files and plugins are not in it: `trainhost check` knows them.
#include <fmt/format.h>

#include <utility>

#include "core/base/json_value.hpp"
#include "core/model/architecture.hpp"
#include "core/runfile/named_values.hpp"
#include "core/runfile/run_config.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/toml_read.hpp"

namespace trainhost::runfile {
namespace {

using Json = JsonValue;

// parse_size() with a unit: a number above 0, of bytes a whole one.
constexpr const char* kSizePattern =
    "^ *(([0-9]*[1-9][0-9]*(\\.[0-9]*)?|[0-9]*\\.[0-9]*[1-9][0-9]*)([eE][-+]?[0-9]+)? *[kKmMgGtTpP][iI]?|"
    "[0-9]*[1-9][0-9]*([eE]\\+?[0-9]+)? *)[bB] *$";
constexpr const char* kDigestPattern = "^(sha256:)?[0-9a-fA-F]{64}$";
constexpr const char* kKeyPattern = "^[A-Za-z0-9_-]+$";

/// A limit of the schema table; limits above 2^63 are not stated for whole numbers, which TOML bounds itself.
Json limit(const Key& k, double value) {
  if (k.type == Type::kInteger) return static_cast<std::int64_t>(value);
  return value;
}

Json number_schema(const Key& k) {
  Json out = {{"type", k.type == Type::kInteger ? "integer" : "number"}, {"minimum", limit(k, k.min)}};
  if (k.type != Type::kInteger || k.max < 9e18) out["maximum"] = limit(k, k.max);
  return out;
}

/// One string of a key: not empty, without the character NUL.
Json string_schema(const Key& k) {
  Json out = {{"type", "string"}};
  if (const std::vector<std::string> names = known_names(k); !names.empty()) {
    out["enum"] = names;
    // Or a pattern of names: is_module_pattern().
    if (std::string_view(k.name) == "lora.targets")
      return {{"type", "string"}, {"anyOf", Json::array({{{"enum", names}}, {{"pattern", "[*?.]"}}})}};
  } else if (std::string_view(k.name) == "plugins.allow") {
    out["pattern"] = kDigestPattern;
  } else {
    out["minLength"] = 1;
    out["pattern"] = "^[^\\u0000]*$";
    if (std::string_view(k.name) == "plugins.order") out["not"]["enum"] = Json::array({"auto"});
  }
  return out;
}

Json list_schema(Json item, std::int64_t least) {
  return {{"type", "array"}, {"items", std::move(item)}, {"minItems", least}};
}

std::vector<std::string> choices_of(const Key& k) {
  std::vector<std::string> out(1);
  for (const char* c = k.choices; *c; ++c)
    if (*c == '|')
      out.emplace_back();
    else
      out.back() += *c;
  return out;
}

Json type_schema(const Key& k) {
  switch (k.type) {
    case Type::kInteger:
    case Type::kNumber:
      return number_schema(k);
    case Type::kPair: {
      Json out = list_schema(number_schema(k), 2);
      out["maxItems"] = 2;
      return out;
    }
    case Type::kNumbers:
      return list_schema(number_schema(k), 1);
    case Type::kSize:
      return {{"type", "string"}, {"pattern", kSizePattern}};
    case Type::kBool:
      return {{"type", "boolean"}};
    case Type::kChoice: {
      Json out = {{"type", "string"}};
      out["enum"] = choices_of(k);
      return out;
    }
    case Type::kText:
    case Type::kPath:
      return string_schema(k);
    case Type::kTexts:
    case Type::kPaths: {
      Json list = list_schema(string_schema(k), 1);
      if (std::string_view(k.name) == "plugins.order") list["uniqueItems"] = true;
      return {{"anyOf", Json::array({string_schema(k), std::move(list)})}};
    }
  }
  return {};
}

Json json_of(const Value& v) {
  switch (v.kind) {
    case Value::Kind::kText:
      return v.text;
    case Value::Kind::kInteger:
      return v.integer;
    case Value::Kind::kNumber:
      return v.number;
    case Value::Kind::kBool:
      return v.boolean;
    case Value::Kind::kList: {
      Json list = Json::array();
      for (const Value& item : v.items) list.push_back(json_of(item));
      return list;
    }
    default:
      return nullptr;
  }
}

Json key_schema(const Key& k) {
  Json out = type_schema(k);
  const bool numbers = k.type == Type::kInteger || k.type == Type::kNumber || k.type == Type::kPair ||
                       k.type == Type::kNumbers || k.type == Type::kSize;
  out["description"] = numbers ? fmt::format("{} ({})", k.doc, accepted_values(k)) : k.doc;
  if (*k.default_toml) out["default"] = json_of(read_toml_value(k.default_toml, {}).value());
  return out;
}

/// A table whose keys are those of `properties`, and those that match kKeyPattern if `others` is given.
Json table_schema(const std::string& description, Json properties, Json others = nullptr) {
  Json out = {{"type", "object"}, {"description", description}};
  if (!properties.members.empty()) out["properties"] = std::move(properties);
  if (!others.is_null()) {
    out["patternProperties"] = Json::object();
    out["patternProperties"][kKeyPattern] = std::move(others);
  }
  out["additionalProperties"] = false;
  return out;
}

Json family_estimators() {
  const Key* estimator = find_key("memory.estimator");
  Json properties = Json::object();
  for (const std::string_view family : model::known_families()) properties[family] = type_schema(*estimator);
  properties["*"] = type_schema(*estimator);
  return table_schema("Estimators by model family; \"*\" is for every family without a line of its own.",
                      std::move(properties), type_schema(*estimator));
}

Json plugin_options() {
  const Json option = {{"type", Json::array({"string", "number", "boolean"})}};
  return table_schema("Options of plugins, in tables [plugin.NAME].", Json::object(),
                      table_schema("Options of one plugin; `trainhost plugins info NAME` lists them.",
                                   Json::object(), option));
}

Json table_of(const Table& t) {
  const std::string_view name = t.name;
  if (name == "memory.estimators") return family_estimators();
  if (name == "plugin") return plugin_options();
  Json properties = Json::object();
  const auto below = [&](std::string_view full) {
    return full.starts_with(name) && full.size() > name.size() && full[name.size()] == '.' &&
           full.find('.', name.size() + 1) == full.npos;
  };
  for (const Key& k : schema())
    if (below(k.name)) properties[std::string_view(k.name).substr(name.size() + 1)] = key_schema(k);
  for (const Table& inner : tables())
    if (below(inner.name)) properties[std::string_view(inner.name).substr(name.size() + 1)] = table_of(inner);
  return table_schema(t.doc, std::move(properties));
}

}  // namespace

std::string run_file_json_schema() {
  Json properties = Json::object();
  for (const Table& t : tables())
    if (std::string_view(t.name).find('.') == std::string_view::npos) properties[t.name] = table_of(t);
  Json out = {{"$schema", "http://json-schema.org/draft-04/schema#"},
              {"title", "Run file of trainhost"},
              {"type", "object"},
              {"properties", std::move(properties)},
              {"additionalProperties", false}};
  return out.dump(1) + "\n";
}

}  // namespace trainhost::runfile
