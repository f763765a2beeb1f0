// See json_fields.hpp.
#include "core/records/json_fields.hpp"

#include "core/base/text.hpp"

namespace trainhost::records {

std::string quote(std::string_view text) { return "'" + escaped(text, 60) + "'"; }

const char* kind_name(const JsonValue& v) {
  switch (v.kind) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return "a boolean";
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kNumber:
      return "a number";
    case JsonValue::Kind::kString:
      return "a text";
    case JsonValue::Kind::kArray:
      return "a list";
    case JsonValue::Kind::kObject:
      return "an object";
  }
  return "?";
}

std::string keys_of(const JsonValue& object) {
  std::string all;
  std::size_t n = 0;
  for (const JsonMember& m : object.members) {
    if (n++ == 8) return all + ", ...";
    all += (n > 1 ? ", " : "") + quote(m.key);
  }
  return all.empty() ? "no key" : all;
}

static std::string similar_key(const JsonValue& object, const std::string& key) {
  std::vector<std::string> names;
  for (const JsonMember& m : object.members) names.push_back(m.key);
  return did_you_mean(key, names);
}

const JsonValue& required(const JsonValue& object, const std::string& key, std::string_view with) {
  if (const JsonValue* v = object.find(key)) return *v;
  throw JsonError(object.begin, quote(with) + " without " + quote(key) + similar_key(object, key));
}

std::string text_in(const JsonValue& v, std::string_view key) {
  if (!v.is_string())
    throw JsonError(v.begin, quote(key) + " is " + std::string(kind_name(v)) + "; expected a text");
  return v.string;
}

std::string nonempty_text_in(const JsonValue& v, std::string_view key) {
  std::string text = text_in(v, key);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw JsonError(v.begin, quote(key) + " is empty");
  return text;
}

}  // namespace trainhost::records
