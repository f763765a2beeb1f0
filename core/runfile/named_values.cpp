// See named_values.hpp.
#include "core/runfile/named_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/run_config.hpp"
#include "core/runfile/suggest.hpp"

namespace trainhost::runfile {
namespace {

void require_preset(const Value& v) {
  if (!find_preset(v.text))
    throw usage_error(
        fmt::format("model.preset = \"{}\": unknown model{}", escaped(v.text, 80), suggest_model(v.text)),
        "`trainhost models` lists the built-in models", v.where);
}

void require_device(const Value& v) {
  if (!find_device_preset(v.text))
    throw usage_error(
        fmt::format("memory.device = \"{}\": unknown device{}", escaped(v.text, 80), suggest_device(v.text)),
        "`trainhost devices` lists the known devices; memory.budget or --budget=SIZE plans for any other",
        v.where);
}

std::vector<std::string> target_names() {
  std::vector<std::string> names(lora_target_names().begin(), lora_target_names().end());
  names.insert(names.end(), {"all-linear", "lm_head", "embed_tokens"});
  return names;
}

/// "a, b" as items of a list: "a", "b".
std::string as_list(std::string_view text) {
  std::string list;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t first = item.find_first_not_of(' '), last = item.find_last_not_of(' ');
    if (first == item.npos) continue;
    list += (list.empty() ? "\"" : ", \"") + escaped(item.substr(first, last + 1 - first), 80) + "\"";
  }
  return "[" + list + "]";
}

void require_targets(const std::vector<Value>& targets, const Where& where) {
  const std::vector<std::string> known = target_names();
  if (targets.size() == 1 && targets.front().text.find(',') != std::string::npos)
    throw usage_error(fmt::format("lora.targets = \"{}\": several matrices are a list of strings",
                                  escaped(targets.front().text, 80)),
                      "write targets = " + as_list(targets.front().text), where);
  for (const Value& v : targets)
    if (!is_module_pattern(v.text) && std::ranges::find(known, v.text) == known.end())
      throw usage_error(
          fmt::format("lora.targets: unknown matrix '{}'{}", escaped(v.text, 80), suggest_target(v.text)),
          fmt::format("expected \"all-linear\", or one or more of {}, lm_head, embed_tokens, or patterns as "
                      "\"layers.0.*\"",
                      fmt::join(lora_target_names(), ", ")),
          where);
}

void require_digests(const std::vector<Value>& digests, const Where& where) {
  for (const Value& v : digests)
    if (sha256_digits(v.text).empty())
      throw usage_error(fmt::format("plugins.allow: '{}' is not a SHA-256 digest", escaped(v.text, 80)),
                        "expected 64 hex digits, as printed by `sha256sum FILE`", where);
}

/// "auto" in its own order would mean nothing; a backend listed twice would be probed twice.
void require_backends(const std::vector<Value>& order, const Where& where) {
  for (auto v = order.begin(); v != order.end(); ++v) {
    const bool twice = std::any_of(order.begin(), v, [&](const Value& o) { return o.text == v->text; });
    if (v->text == "auto" || twice)
      throw usage_error(fmt::format("plugins.order: '{}' {}", escaped(v->text, 80),
                                    twice ? "is listed twice" : "is not a backend name"),
                        "list each backend once, for example [\"cuda\", \"cpu\"]", where);
  }
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelSpec& m : model_presets()) names.push_back(m.name);
  for (const std::string& name : model::planned_preset_names()) names.push_back(name);
  return names;
}

const ModelSpec* find_preset(const std::string& name) {
  const ModelSpec* m = find_model_preset(name);
  return m ? m : model::find_planned_preset(name);
}

std::vector<std::string> known_names(const Key& key) {
  const std::string_view name = key.name;
  if (name == "model.preset") return preset_names();
  if (name == "lora.targets") return target_names();
  std::vector<std::string> names;
  if (name == "memory.device")
    for (const DevicePreset& d : device_presets()) names.push_back(d.name);
  return names;
}

void validate_names(const Key& key, const Value& v) {
  const std::string_view name = key.name;
  const auto items = [&] { return v.kind == Value::Kind::kList ? v.items : std::vector<Value>{v}; };
  if (name == "model.preset") return require_preset(v);
  if (name == "memory.device") return require_device(v);
  if (name == "lora.targets") return require_targets(items(), v.where);
  if (name == "plugins.allow") return require_digests(items(), v.where);
  if (name == "plugins.order") return require_backends(items(), v.where);
}

std::string sha256_digits(std::string text) {
  if (text.starts_with("sha256:")) text.erase(0, 7);
  for (char& ch : text) ch = static_cast<char>(ch >= 'A' && ch <= 'F' ? ch - 'A' + 'a' : ch);
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos ? text : "";
}

}  // namespace trainhost::runfile
