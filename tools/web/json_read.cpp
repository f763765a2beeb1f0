// In place of core/framework_files/yaml_read.cpp, whose parser is a library that is not built for browsers:
// reads JSON, and refuses YAML.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/framework_files/yaml_read.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

class Flattener {
 public:
  Flattener(const std::string& text, const std::string& name) : positions_(text, name) {}

  void add(const JsonValue& v, const std::string& key, const Where& key_where) {
    if (v.is_object() && (!v.members.empty() || key.empty())) {
      for (const JsonMember& m : v.members)
        add(m.value, key.empty() ? m.key : key + "." + m.key, positions_.where(m.key_at));
    } else if (v.is_array() && !std::all_of(v.elements.begin(), v.elements.end(), is_scalar)) {
      for (std::size_t i = 0; i < v.elements.size(); ++i)
        add(v.elements[i], fmt::format("{}.{}", key, i), key_where);
    } else {
      out_.push_back({key, key_where, value(v)});
    }
  }
  std::vector<Entry> take() { return std::move(out_); }

 private:
  static bool is_scalar(const JsonValue& v) { return !v.is_object() && !v.is_array(); }

  Value value(const JsonValue& v) {
    Value out;
    out.where = positions_.where(v.begin);
    switch (v.kind) {
      case JsonValue::Kind::kBool:
        out.kind = Value::Kind::kBool, out.boolean = v.boolean;
        break;
      case JsonValue::Kind::kInteger:
        out.kind = Value::Kind::kInteger, out.integer = v.integer, out.number = v.number;
        break;
      case JsonValue::Kind::kNumber:
        out.kind = Value::Kind::kNumber, out.number = v.number;
        break;
      case JsonValue::Kind::kString:
        out = runfile::text_value(v.string, out.where);
        break;
      case JsonValue::Kind::kArray:
        out.kind = Value::Kind::kList;
        for (const JsonValue& item : v.elements) out.items.push_back(value(item));
        break;
      default:
        out.kind = Value::Kind::kNull;
    }
    return out;
  }

  JsonPositions positions_;
  std::vector<Entry> out_;
};

}  // namespace

std::vector<Entry> read_yaml(const std::string& text, const std::string& name) {
  try {
    const JsonValue document = parse_json(text);
    if (!document.is_object())
      throw usage_error("the file does not contain keys and values", "expected JSON", {name, 1, 1});
    Flattener f(text, name);
    f.add(document, "", {name, 1, 1});
    return f.take();
  } catch (const JsonError& e) {
    throw usage_error(
        fmt::format("this is not JSON: {}", escaped(e.what(), 120)),
        "the planner in the browser reads JSON only; `trainhost plan --from FILE` reads YAML too",
        {name, 1, 1});
  }
}

}  // namespace trainhost::framework_files
