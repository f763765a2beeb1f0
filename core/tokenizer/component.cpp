// See component.hpp.
#include "core/tokenizer/component.hpp"

#include <stdexcept>

#include "core/base/text.hpp"

namespace trainhost::tokenizer {

void Component::reject(const std::string& what) const {
  throw usage_error("tokenizer " + file + ": " + kind + " " + escaped(type()) + " " + what);
}

void Component::reject_type(const char* supported) const {
  throw usage_error("tokenizer " + file + ": " + kind + " '" + escaped(type()) +
                    "' is not supported; supported: " + supported);
}

std::string Component::type() const {
  const std::string_view name = json.text_of("type");
  if (name.empty()) throw usage_error("tokenizer " + file + ": " + kind + " has no \"type\"");
  return std::string(name);
}

std::string Component::text(std::string_view key) const {
  const JsonValue* v = json.find(key);
  if (!v || !v->is_string()) reject("has no text \"" + std::string(key) + "\"");
  return v->string;
}

bool Component::boolean(std::string_view key, bool absent) const {
  const JsonValue* v = json.find(key);
  if (!v || v->is_null()) return absent;
  if (v->kind != JsonValue::Kind::kBool) reject("has no true or false at \"" + std::string(key) + "\"");
  return v->boolean;
}

std::size_t Component::count(std::string_view key) const {
  const JsonValue* v = json.find(key);
  if (!v || v->kind != JsonValue::Kind::kInteger || v->integer < 0 || v->integer > (1 << 20))
    reject("has no number at \"" + std::string(key) + "\"");
  return static_cast<std::size_t>(v->integer);
}

std::vector<Component> Component::sequence(std::string_view key) const {
  const JsonValue* v = json.find(key);
  if (!v || !v->is_array()) reject("has no list \"" + std::string(key) + "\"");
  std::vector<Component> parts;
  for (const JsonValue& part : v->elements) parts.push_back({part, file, kind});
  return parts;
}

Pattern Component::pattern() const {
  const JsonValue* v = json.find("pattern");
  if (v && v->find("String") && v->find("String")->is_string())
    return Pattern::literal(v->find("String")->string);
  if (!v || !v->find("Regex") || !v->find("Regex")->is_string())
    reject("has no \"pattern\" with \"String\" or \"Regex\"");
  const std::string& regex = v->find("Regex")->string;
  try {
    return Pattern(regex);
  } catch (const std::invalid_argument& e) {
    reject("has the pattern '" + escaped(regex) + "', which is not understood: " + e.what());
  }
}

}  // namespace trainhost::tokenizer
