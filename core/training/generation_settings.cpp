// See generation_settings.hpp. Defaults: GenerationConfig of transformers 5.
#include "core/training/generation_settings.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kConfigFileBytes = 16u << 20;

/// A JSON object in a file, and errors that name a place in it.
class SettingsFile {
 public:
  explicit SettingsFile(const fs::path& file)
      : name_(file.string()), text_(checkpoint::read_whole(file, kConfigFileBytes)) {
    try {
      root_ = parse_json(text_);
    } catch (const JsonError& e) {
      throw usage_error(fmt::format("{}: {}", escaped(name_, 4096), e.what()));
    }
    if (!root_.is_object()) throw usage_error(fmt::format("{}: expected an object", escaped(name_, 4096)));
  }

  /// nullptr if the key is missing or null.
  const JsonValue* find(const char* key) const {
    const JsonValue* v = root_.find(key);
    return v && !v->is_null() ? v : nullptr;
  }
  [[noreturn]] void fail(const char* key, const JsonValue& v, const std::string& expected) const {
    JsonPositions positions(text_, name_);
    throw usage_error(fmt::format("{} = {}: expected {}", key, escaped(v.dump(), 80), expected), "",
                      positions.where(v.begin));
  }
  double number(const char* key, double otherwise, double least, double most, const char* expected) const {
    const JsonValue* v = find(key);
    if (!v) return otherwise;
    const bool numeric = v->kind == JsonValue::Kind::kInteger || v->kind == JsonValue::Kind::kNumber;
    if (!numeric || !(v->number >= least && v->number <= most)) fail(key, *v, expected);
    return v->number;
  }
  bool flag(const char* key, bool otherwise) const {
    const JsonValue* v = find(key);
    if (!v) return otherwise;
    if (v->kind != JsonValue::Kind::kBool) fail(key, *v, "true or false");
    return v->boolean;
  }
  /// A token id or a list of them.
  std::vector<std::int32_t> ids(const char* key) const {
    std::vector<std::int32_t> out;
    const auto add = [&](const JsonValue& v) {
      if (v.kind != JsonValue::Kind::kInteger || v.integer < 0 || v.integer > INT32_MAX)
        fail(key, v, "a token id or a list of token ids");
      out.push_back(static_cast<std::int32_t>(v.integer));
    };
    const JsonValue* v = find(key);
    if (v && v->is_array())
      for (const JsonValue& e : v->elements) add(e);
    else if (v)
      add(*v);
    return out;
  }

 private:
  std::string name_, text_;
  JsonValue root_;
};

}  // namespace

GenerationSettings read_generation_settings(const fs::path& dir) {
  GenerationSettings s;
  if (const fs::path file = dir / "generation_config.json"; fs::exists(file)) {
    const SettingsFile f(file);
    const bool samples = f.flag("do_sample", false);
    s.sample.temperature =
        f.number("temperature", 1.0, 0.0, 100.0, "a number from 0 (the most likely token) to 100");
    if (!samples) s.sample.temperature = 0;
    s.sample.top_k =
        static_cast<std::uint32_t>(f.number("top_k", 50, 0, 4294967295.0, "a number of tokens, 0 for all"));
    s.sample.top_p = f.number("top_p", 1.0, 0.0, 1.0, "a number from 0 to 1");
    s.sample.repetition_penalty =
        f.number("repetition_penalty", 1.0, 0.01, 100.0, "a number from 0.01 to 100, 1 for no penalty");
    s.max_length = static_cast<std::uint32_t>(
        f.number("max_length", 0, 1, 4294967295.0, "a number of tokens of at least 1"));
    s.eos_ids = f.ids("eos_token_id");
  }
  if (s.eos_ids.empty()) s.eos_ids = SettingsFile(dir / "config.json").ids("eos_token_id");
  return s;
}

}  // namespace trainhost::training
