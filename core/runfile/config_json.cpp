// Reads the fields of a config.json with their positions. Keeps two levels: the model's fields and the
// members of its objects (rope_scaling). Rejects duplicate keys in every object that is not in a list.
#include <fmt/format.h>

#include <set>

#include "core/base/json_remedy.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/runfile/model_fields.hpp"

namespace trainhost::runfile {
namespace {

JsonValue parse_config(const std::string& json, const std::string& file) {
  try {
    return parse_json(json);
  } catch (const JsonError& e) {
    throw usage_error(fmt::format("not valid JSON: {}", e.what()), json_remedy(json, e),
                      JsonPositions(json, file).where(e.at));
  }
}

// JSON allows duplicates, and readers take the first or the last: two programs would read two models.
void reject_duplicate_keys(const JsonValue& object, const std::string& path, JsonPositions& positions) {
  std::set<std::string_view> seen;
  for (const JsonMember& m : object.members) {
    const std::string name = path + m.key;
    if (!seen.insert(m.key).second)
      throw usage_error(fmt::format("'{}' is given twice", escaped(name, 120)), {},
                        positions.where(m.key_at));
    if (m.value.is_object()) reject_duplicate_keys(m.value, name + ".", positions);
  }
}

Value to_value(const JsonValue& json) {
  Value v;
  switch (json.kind) {
    case JsonValue::Kind::kNull:
      break;
    case JsonValue::Kind::kBool:
      v.kind = Value::Kind::kBool;
      v.boolean = json.boolean;
      break;
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kNumber:
      v.kind = json.kind == JsonValue::Kind::kInteger ? Value::Kind::kInteger : Value::Kind::kNumber;
      // JsonValue has both for a whole number.
      v.integer = json.integer;
      v.number = json.number;
      break;
    case JsonValue::Kind::kString:
      v.kind = Value::Kind::kText;
      v.text = json.string;
      break;
    case JsonValue::Kind::kArray:
      v.kind = Value::Kind::kList;
      for (const JsonValue& element : json.elements) v.items.push_back(to_value(element));
      break;
    case JsonValue::Kind::kObject:
      v.kind = Value::Kind::kTable;
      break;
  }
  return v;
}

void collect_fields(const JsonValue& object, const std::string& prefix, JsonPositions& positions,
                    ModelFields& out) {
  for (const JsonMember& m : object.members) {
    // Such a name cannot be known, and would collide with a dotted one.
    if (m.key.find('.') != m.key.npos) continue;  // '.' joins our dotted names; no known field contains it
    Value v = to_value(m.value);
    v.where = positions.where(m.key_at);
    out[prefix + m.key] = std::move(v);
    // One level: deeper objects have no known fields.
    if (prefix.empty() && m.value.is_object()) collect_fields(m.value, m.key + ".", positions, out);
  }
}

}  // namespace

ModelFields read_config_fields(const std::string& json, const std::string& file) {
  const JsonValue root = parse_config(json, file);
  // Positions are asked in ascending order, which is fast (JsonPositions).
  JsonPositions positions(json, file);
  if (!root.is_object())
    throw usage_error("expected a JSON object with the model's fields", {}, positions.where(0));
  reject_duplicate_keys(root, "", positions);
  ModelFields out;
  collect_fields(root, "", positions, out);
  return out;
}

}  // namespace trainhost::runfile
