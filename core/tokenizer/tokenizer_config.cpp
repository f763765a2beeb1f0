// See tokenizer_config.hpp.
#include "core/tokenizer/tokenizer_config.hpp"

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/json_value.hpp"

namespace trainhost::tokenizer {

TokenizerConfig read_tokenizer_config(std::string_view text, const std::string& beside) {
  TokenizerConfig c;
  if (text.empty()) return c;
  JsonValue json;
  try {
    json = parse_json(text);
  } catch (const JsonError& e) {
    throw usage_error("tokenizer_config.json beside " + beside + " is not JSON: " + e.what() + " at byte " +
                      std::to_string(e.at));
  }
  const auto token = [&](const char* key) {
    const JsonValue* v = json.find(key);
    if (!v || v->is_null()) return std::string();
    return std::string(v->is_string() ? std::string_view(v->string) : v->text_of("content"));
  };
  const auto is_true = [&](const char* key) {
    const JsonValue* v = json.find(key);
    return v && v->kind == JsonValue::Kind::kBool && v->boolean;
  };
  return {token("bos_token"), token("eos_token"), is_true("add_bos_token"), is_true("add_eos_token")};
}

}  // namespace trainhost::tokenizer
