// See adapter_config.hpp. The keys are those of peft.LoraConfig, whose defaults hold for absent ones.
#include "core/runfile/adapter_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {

struct CompiledPattern {
  std::regex regex;
};

namespace {

constexpr std::uint64_t kMaxAdapterConfigBytes = 1u << 20;
constexpr double kMostAlpha = 1e6;  // as for lora.alpha
constexpr const char* kUsePeft = "merge it with PEFT: merge_and_unload()";

/// Null, false, "", "none", 0, [] and {}: the key has no effect.
bool is_neutral(const JsonValue& v) {
  switch (v.kind) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return !v.boolean;
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kNumber:
      return v.number == 0;
    case JsonValue::Kind::kString:
      return v.string.empty() || v.string == "none";
    case JsonValue::Kind::kArray:
      return v.elements.empty();
    case JsonValue::Kind::kObject:
      return v.members.empty();
  }
  return false;
}

class AdapterReader {
 public:
  AdapterReader(const std::string& text, const std::string& name)
      : name_(name), positions_(text, name), json_(parse(text)) {}

  AdapterConfig read() {
    if (json_.text_of("peft_type") != "LORA")
      fail(json_.find("peft_type"),
           fmt::format("peft_type = \"{}\": only LORA adapters can be read",
                       escaped(json_.text_of("peft_type"), 80)),
           kUsePeft);
    require_plain_lora();
    AdapterConfig c;
    const JsonValue *r = json_.find("r"), *alpha = json_.find("lora_alpha"),
                    *dropout = json_.find("lora_dropout"), *rslora = json_.find("use_rslora"),
                    *dora = json_.find("use_dora");
    if (!r || r->kind != JsonValue::Kind::kInteger || r->integer < 1 || r->integer > 65536)
      fail(r, "r: expected a whole number from 1 to 65536", "");
    if (!alpha || !is_number(*alpha) || !(alpha->number > 0 && alpha->number <= kMostAlpha))
      fail(alpha, "lora_alpha: expected a positive number of at most 1e6", "");
    if (dropout && !is_neutral(*dropout) &&
        (!is_number(*dropout) || !(dropout->number > 0 && dropout->number < 1)))
      fail(dropout, "lora_dropout: expected a number from 0 to 1, 1 excluded", "");
    if (dora && dora->kind != JsonValue::Kind::kBool && dora->kind != JsonValue::Kind::kNull)
      fail(dora, "use_dora: expected true or false", "");
    c.rank = static_cast<std::uint32_t>(r->integer);
    c.alpha = alpha->number;
    c.rslora = rslora && rslora->boolean;
    c.dora = dora && dora->boolean;
    c.dropout = dropout && is_number(*dropout) ? dropout->number : 0;
    c.base = std::string(json_.text_of("base_model_name_or_path"));
    const JsonValue* tied = json_.find("ensure_weight_tying");
    c.tied = tied && tied->boolean;
    read_modules(c);
    read_pattern("rank_pattern", c.rank_pattern, [](const JsonValue& v) {
      return v.kind == JsonValue::Kind::kInteger && v.integer >= 1 && v.integer <= 65536;
    });
    read_pattern("alpha_pattern", c.alpha_pattern,
                 [](const JsonValue& v) { return is_number(v) && v.number > 0 && v.number <= kMostAlpha; });
    read_targets(c);
    return c;
  }

 private:
  static bool is_number(const JsonValue& v) {
    return v.kind == JsonValue::Kind::kInteger || v.kind == JsonValue::Kind::kNumber;
  }

  JsonValue parse(const std::string& text) const {
    try {
      return parse_json(text);
    } catch (const JsonError& e) {
      throw usage_error(fmt::format("{}: {}", escaped(name_, 4096), e.what()), "PEFT writes this file");
    }
  }

  Error error(const JsonValue* at, const std::string& message, const std::string& hint) {
    return usage_error(message, hint, at ? positions_.where(at->begin) : Where{name_});
  }
  [[noreturn]] void fail(const JsonValue* at, const std::string& message, const std::string& hint) {
    throw error(at, message, hint);
  }

  void require_plain_lora() {
    // Keys that change what an adapter computes, or that name other trained tensors.
    for (const char* key :
         {"use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "bias", "layer_replication",
          "trainable_token_indices", "target_parameters", "alora_invocation_tokens", "arrow_config",
          "velora_config", "kasa_config", "monteclora_config"})
      if (const JsonValue* v = json_.find(key); v && !is_neutral(*v))
        fail(v, fmt::format("{} is set: trainhost does not apply such an adapter", key), kUsePeft);
    // These replace the weights of the model before training.
    if (const JsonValue* init = json_.find("init_lora_weights"); init && init->is_string())
      for (const char* kind : {"pissa", "olora", "loftq", "corda", "lora_ga"})
        if (init->string.starts_with(kind))
          fail(init,
               fmt::format("init_lora_weights = \"{}\" changes the weights of the model",
                           escaped(init->string, 80)),
               kUsePeft);
  }

  void read_modules(AdapterConfig& c) {
    const JsonValue* modules = json_.find("modules_to_save");
    if (!modules || is_neutral(*modules)) return;
    if (!modules->is_array()) fail(modules, "modules_to_save: expected a list of names", "");
    for (const JsonValue& m : modules->elements) {
      if (!m.is_string() || m.string.empty() || m.string.find_first_of("*?\n") != std::string::npos)
        fail(&m, "modules_to_save: expected the names of modules", "");
      c.modules_to_save.push_back(m.string);
    }
  }

  ModulePattern compiled(const char* key, const JsonValue* at, const std::string& text, bool of_end) {
    constexpr std::size_t kLongestPattern = 1000;
    if (text.size() > kLongestPattern)
      fail(at,
           fmt::format("{}: a regular expression has {} characters, more than {}", key, text.size(),
                       kLongestPattern),
           "");
    auto flags = std::regex_constants::ECMAScript;
#ifdef __GLIBCXX__
    flags |= std::regex_constants::__polynomial;  // the file is untrusted: no exponential search
#endif
    try {
      return {text, std::make_shared<CompiledPattern>(
                        CompiledPattern{std::regex(of_end ? "(.*\\.)?(" + text + ")" : text, flags)})};
    } catch (const std::regex_error& e) {
      fail(at, fmt::format("{}: \"{}\" is no regular expression: {}", key, escaped(text, 200), e.what()), "");
    }
  }

  template <class T, class IsValid>
  void read_pattern(const char* key, std::vector<std::pair<ModulePattern, T>>& pattern,
                    const IsValid& is_valid) {
    const JsonValue* v = json_.find(key);
    if (!v || is_neutral(*v)) return;
    if (v->kind != JsonValue::Kind::kObject) fail(v, fmt::format("{}: expected an object", key), "");
    for (const JsonMember& m : v->members) {
      if (!is_valid(m.value))
        fail(&m.value, fmt::format("{}: expected a positive number for \"{}\"", key, escaped(m.key, 80)), "");
      pattern.emplace_back(compiled(key, &m.value, m.key, true), static_cast<T>(m.value.number));
    }
  }

  /// Names of modules, or a regular expression of them.
  void read_names(const char* key, std::vector<std::string>& names, std::optional<ModulePattern>& pattern) {
    const JsonValue* v = json_.find(key);
    if (!v || is_neutral(*v)) return;
    if (v->is_string()) {
      pattern = compiled(key, v, v->string, false);
      return;
    }
    if (!v->is_array()) fail(v, fmt::format("{}: expected a list of names or a regular expression", key), "");
    for (const JsonValue& name : v->elements) {
      if (!name.is_string() || name.string.empty())
        fail(&name, fmt::format("{}: expected the names of modules", key), "");
      names.push_back(name.string);
    }
  }

  void read_layers(AdapterConfig& c) {
    const JsonValue *layers = json_.find("layers_to_transform"), *pattern = json_.find("layers_pattern");
    if (!layers || layers->kind == JsonValue::Kind::kNull) return;
    const auto add = [&](const JsonValue& v) {
      if (v.kind != JsonValue::Kind::kInteger || v.integer < 0 || v.integer > 65535)
        fail(&v, "layers_to_transform: expected numbers of layers", "");
      c.layers.push_back(static_cast<std::uint32_t>(v.integer));
    };
    if (!layers->is_array()) return add(*layers);
    for (const JsonValue& v : layers->elements) add(v);
    const auto is_layers = [](const JsonValue& v) { return v.is_string() && v.string == "layers"; };
    if (pattern && !is_neutral(*pattern) && !is_layers(*pattern) &&
        !(pattern->is_array() && std::ranges::any_of(pattern->elements, is_layers)))
      fail(pattern, "layers_pattern: the layers of these models are \"layers\"", "");
  }

  void read_targets(AdapterConfig& c) {
    const JsonValue* targets = json_.find("target_modules");
    if (targets && targets->is_string() && targets->string == "all-linear") {
      c.all_linear = true;
    } else {
      read_names("target_modules", c.targets, c.target_pattern);
    }
    read_names("exclude_modules", c.excluded, c.excluded_pattern);
    read_layers(c);
  }

  std::string name_;
  JsonPositions positions_;
  JsonValue json_;
};

}  // namespace

namespace {
bool matches_pattern(const ModulePattern& pattern, const std::string& module) {
  return std::regex_match(module, pattern.compiled->regex);
}

/// The value of the first pattern that matches, as PEFT chooses it.
template <class T>
T value_of(const std::vector<std::pair<ModulePattern, T>>& patterns, const std::string& module, T otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (matches_pattern(pattern, module)) return value;
  return otherwise;
}

bool names_module(const std::vector<std::string>& ends, const std::string& module) {
  return std::ranges::any_of(
      ends, [&](const std::string& end) { return module == end || module.ends_with("." + end); });
}
}  // namespace

AdapterSize AdapterConfig::size_of(const std::string& module) const {
  const std::uint32_t r = value_of(rank_pattern, module, rank);
  const double a = value_of(alpha_pattern, module, alpha);
  return {r, rslora ? a * std::sqrt(static_cast<double>(r)) : a};
}

bool AdapterConfig::adapts(const std::string& module) const {
  if (names_module(excluded, module) || (excluded_pattern && matches_pattern(*excluded_pattern, module)))
    return false;
  if (target_pattern) return matches_pattern(*target_pattern, module);
  // PEFT leaves out the LM head, and the embedding is no linear layer.
  const bool of_layer = module.starts_with("layers.") || module.find(".layers.") != module.npos;
  if (!(all_linear && of_layer) && !names_module(targets, module)) return false;
  if (layers.empty()) return true;
  // "model.layers.7.mlp.up_proj"
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = module.find(kLayers);
  if (at == module.npos) return false;
  std::uint32_t layer = 0;
  std::from_chars(module.data() + at + kLayers.size(), module.data() + module.size(), layer);
  return std::ranges::find(layers, layer) != layers.end();
}

AdapterConfig read_adapter_config(const std::filesystem::path& file) {
  const std::string text = read_text_file(file, kMaxAdapterConfigBytes, "adapter", Where{});
  return AdapterReader(text, file.string()).read();
}

std::optional<std::filesystem::path> adapter_folder(const std::filesystem::path& dir) {
  std::error_code ec;
  for (const std::filesystem::path& d : {dir, dir / "adapter"})
    if (std::filesystem::is_regular_file(d / "adapter_config.json", ec)) return d;
  return std::nullopt;
}

}  // namespace trainhost::runfile
