// Converts fields to a ModelSpec by the rules of transformers' config classes. A field that changes the model
// in a way that its family does not support is an error, so that nothing is dropped silently. Fields that
// affect neither shapes nor arithmetic (token ids, use_cache, torch_dtype, ...) are ignored.
#include "core/runfile/model_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/model_field_reader.hpp"

namespace trainhost::runfile {
namespace {

/// Defaults of absent fields.
struct Defaults {
  bool dimensions_required = true;  // the five dimensions have no default
  std::uint32_t kv_heads = 0;       // 0 = as many as query heads
  std::uint32_t head_dim = 0;       // 0 = hidden_size / num_attention_heads
  std::uint32_t window = 0;
  ModelSpec model;  // of all other fields
};

/// Defaults of the config classes of transformers, which a config.json omits. They differ per family.
Defaults config_defaults(const std::string& family) {
  Defaults a;
  a.model.norm_eps = 1e-6;
  a.model.max_positions = family == "llama" ? 2048 : family == "mistral" ? 131072 : 32768;
  a.kv_heads = family == "llama" ? 0 : family == "mistral" ? 8 : 32;
  a.head_dim = family == "qwen3" ? 128 : 0;
  a.window = family == "llama" ? 0 : 4096;
  return a;
}

/// An inline model varies the built-in one. If heads or width are given, widths that depend on them are
/// derived instead of being taken from the built-in model.
Defaults inline_defaults(const ModelFieldReader& f) {
  Defaults a;
  a.dimensions_required = false;
  a.model = builtin_model();
  a.kv_heads = f.given("num_attention_heads") ? 0 : a.model.kv_heads;
  a.head_dim = f.given("num_attention_heads") || f.given("hidden_size") ? 0 : a.model.head_dim;
  return a;
}

/// Without head_dim, a head is hidden_size / num_attention_heads wide, which must be a whole number.
void require_whole_heads(const ModelFieldReader& f, const ModelSpec& m) {
  if (m.heads == 0 || m.hidden % m.heads == 0) return;
  const char* hint = "set head_dim, or choose a multiple";
  if (f.given("hidden_size"))
    f.fail("hidden_size",
           fmt::format("= {} is not a multiple of num_attention_heads = {}", m.hidden, m.heads), hint);
  f.fail("num_attention_heads", fmt::format("= {} does not divide hidden_size = {}", m.heads, m.hidden),
         hint);
}

void read_dimensions(const ModelFieldReader& f, const Defaults& defaults, ModelSpec& m) {
  const ModelSpec& r = defaults.model;
  const auto dimension = [&](const char* name, std::uint32_t fallback) {
    if (defaults.dimensions_required && !f.given(name))
      f.fail(name, "is missing", "it is required for every model");
    return f.size(name, fallback);
  };
  m.vocab = dimension("vocab_size", static_cast<std::uint32_t>(r.vocab));
  m.hidden = dimension("hidden_size", r.hidden);
  m.layers = dimension("num_hidden_layers", r.layers);
  m.heads = dimension("num_attention_heads", r.heads);
  m.intermediate = dimension("intermediate_size", r.intermediate);
  // As in transformers, null means one per query head, and an absent field means the class default.
  m.kv_heads = f.size("num_key_value_heads",
                      f.present("num_key_value_heads") || !defaults.kv_heads ? m.heads : defaults.kv_heads);
  const std::uint32_t head_dim = f.present("head_dim") ? 0 : defaults.head_dim;
  if (!f.given("head_dim") && !head_dim) require_whole_heads(f, m);
  m.head_dim = f.size("head_dim", head_dim ? head_dim : m.heads ? m.hidden / m.heads : 0);
  m.max_positions = f.size("max_position_embeddings", static_cast<std::uint32_t>(r.max_positions));
}

void read_biases(const ModelFieldReader& f, ModelSpec& m) {
  const bool attention = f.boolean("attention_bias", false), mlp = f.boolean("mlp_bias", false);
  if (attention && m.family == "mistral") f.fail("attention_bias", "= true: mistral has no biases");
  if (mlp && m.family != "llama")
    f.fail("mlp_bias", fmt::format("= true: {} has no biases in its MLP", m.family));
  if (m.family == "qwen2" && f.given("attention_bias") && !attention)
    f.fail("attention_bias", "= false: qwen2 always has biases on q, k and v",
           "use llama or qwen3 for a model without biases");
  m.qkv_bias = attention || m.family == "qwen2";
  m.o_bias = attention && m.family != "qwen2";
  m.mlp_bias = mlp;
  m.qk_norm = m.family == "qwen3";
}

/// layer_types of newer configs: one entry per layer. Supported: full attention in the first layers, then the
/// sliding window in all others.
void read_layer_types(const ModelFieldReader& f, ModelSpec& m, std::uint32_t window) {
  const std::vector<Value> types = f.list("layer_types");
  if (types.empty()) return;
  if (types.size() != m.layers)
    f.fail("layer_types",
           fmt::format("has {}: expected num_hidden_layers = {}", plural(types.size(), "entry"), m.layers));
  const auto is = [](const char* what) {
    return [what](const Value& v) { return v.kind == Value::Kind::kText && v.text == what; };
  };
  const auto first = std::find_if_not(types.begin(), types.end(), is("full_attention"));
  if (!std::all_of(first, types.end(), is("sliding_attention")))
    f.fail("layer_types", "is not supported: expected full_attention, then sliding_attention to the end");
  m.sliding_window = first == types.end() ? 0 : window;
  m.first_window_layer = m.sliding_window ? static_cast<std::uint32_t>(first - types.begin()) : 0;
  if (first != types.end() && !window)
    f.fail("layer_types", "has sliding_attention without a sliding_window");
}

void read_window(const ModelFieldReader& f, const Defaults& defaults, ModelSpec& m) {
  if (m.family == "llama") {
    for (const char* name : {"sliding_window", "use_sliding_window", "max_window_layers"})
      if (f.given(name) && !f.is_false(name))
        f.fail(name, "is not a field of llama", "use model_type = \"mistral\" for a sliding window");
    return;
  }
  const std::uint32_t window = f.u32("sliding_window", f.present("sliding_window") ? 0 : defaults.window);
  if (f.given("sliding_window") && window == 0)
    f.fail("sliding_window", "= 0: expected a positive number, or null for none");
  bool used = true;
  if (m.family != "mistral") {
    used = f.boolean("use_sliding_window", !defaults.dimensions_required && f.given("sliding_window"));
    m.first_window_layer = f.u32("max_window_layers", defaults.dimensions_required ? 28 : 0);
  }
  if (used && !window && f.given("use_sliding_window"))
    f.fail("use_sliding_window", "= true: sliding_window is missing",
           "set sliding_window to the window in tokens");
  m.sliding_window = used ? window : 0;
  if (!m.sliding_window) m.first_window_layer = 0;
  if (m.first_window_layer >= m.layers)
    m.sliding_window = 0, m.first_window_layer = 0;  // no layer uses the window
  read_layer_types(f, m, used ? window : 0);
}

constexpr const char* kPlanOnly = "`trainhost plan --for NAME` plans it for a framework that trains it";

/// rope_theta and rope_scaling, or the newer rope_parameters, which contains both.
void read_rope(const ModelFieldReader& f, double theta, bool of_framework, ModelSpec& m) {
  const std::string group = f.given("rope_parameters") ? "rope_parameters" : "rope_scaling";
  m.rope_theta = f.number("rope_theta", theta);
  if (f.given("rope_parameters")) m.rope_theta = f.number("rope_parameters.rope_theta", m.rope_theta);
  for (const std::string& name : {std::string("partial_rotary_factor"), group + ".partial_rotary_factor"})
    if (f.number(name, 1.0) != 1.0 && !of_framework)
      f.fail(name, "is not supported: rotary embeddings apply to the whole head", kPlanOnly);
  m.rope = {};
  if (!f.given(group)) return;
  f.require_table(group);
  const std::string kind = f.text(group + ".rope_type", f.text(group + ".type", ""));
  const std::string at = group + (f.given(group + ".rope_type") ? ".rope_type" : ".type");
  if (kind.empty() && group == "rope_scaling")
    f.fail(group, "has no rope_type", "expected default, linear or llama3");
  if (kind.empty() || kind == "default") return;
  static const std::vector<std::string> kKinds{"default", "linear", "llama3"};
  if (kind != "linear" && kind != "llama3") {
    if (of_framework) return;
    f.fail(at,
           fmt::format("= \"{0}\": rope scaling {0} is not supported{1}", escaped(kind, 40),
                       did_you_mean(kind, kKinds)),
           std::string("supported: default, linear, llama3; ") + kPlanOnly);
  }
  const auto require = [&](const char* name) {
    const std::string full = group + "." + name;
    if (!f.given(full)) f.fail(full, fmt::format("is missing: rope scaling {} requires it", kind));
    return full;
  };
  m.rope.kind = kind == "linear" ? RopeKind::kLinear : RopeKind::kLlama3;
  m.rope.factor = f.number(require("factor"), 1);
  if (kind == "linear") return;
  m.rope.low_freq_factor = f.number(require("low_freq_factor"), 1);
  m.rope.high_freq_factor = f.number(require("high_freq_factor"), 4);
  m.rope.original_max_positions = f.u32(require("original_max_position_embeddings"), 0);
}

/// Fields that change the arithmetic in a way that no trainer implements.
void reject_unsupported_fields(const ModelFieldReader& f) {
  const std::string act = f.text("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    f.fail("hidden_act", fmt::format("= \"{}\" is not supported: expected silu", escaped(act, 40)),
           kPlanOnly);
  if (f.number("attention_dropout", 0) != 0)
    f.fail("attention_dropout", "is not supported: expected 0", kPlanOnly);
  if (f.given("quantization_config"))
    f.fail("quantization_config", "is not supported: expected unquantized weights",
           std::string("use the model that it was made from, which `trainhost finetune --qlora` quantizes "
                       "itself; ") +
               kPlanOnly);
}

/// Unsupported fields are rejected before any other is read: their message is the more useful one.
ModelSpec build(const ModelFieldReader& f, const std::string& family, const Defaults& defaults,
                bool of_framework = false) {
  ModelSpec m;
  m.family = family;
  bool valid = of_framework || f.rule([&] { reject_unsupported_fields(f); });
  valid &= f.rule([&] { read_dimensions(f, defaults, m); });
  valid &= f.rule([&] { read_biases(f, m); });
  valid &= f.rule([&] { read_window(f, defaults, m); });
  valid &= f.rule([&] { read_rope(f, defaults.model.rope_theta, of_framework, m); });
  if (!valid) return m;
  m.tied = f.boolean("tie_word_embeddings", defaults.model.tied);
  m.norm_eps = f.number("rms_norm_eps", defaults.model.norm_eps);
  // The default is 0.02 in a config.json, as in transformers, and 1/sqrt(hidden_size) for an inline model, as
  // in the built-in model.
  const double init = defaults.dimensions_required || m.hidden == 0 ? defaults.model.initializer_range
                                                                    : 1 / std::sqrt(m.hidden);
  m.initializer_range = f.number("initializer_range", init);
  f.check([&] { validate(m); });
  return m;
}

/// "MistralForCausalLM" -> "mistral", for configs without model_type. Only the first class counts; others are
/// variants of the same model.
std::string family_from_architecture(const ModelFieldReader& f) {
  const std::vector<Value> list = f.list("architectures");
  return list.empty() ? "" : model::family_of_class(list.front().text);
}

/// A family that cannot be trained. If core/model does not know it either, planning rejects it after asking
/// every estimator.
ModelSpec planned_model(const ModelFieldReader& f, const std::string& family, const std::string& json,
                        const std::string& file) {
  ModelSpec m;
  f.check([&] {
    m = model::known_family(family) ? model::outline(model::from_config(json, file), json)
                                    : model::outline_of_unknown(family, json);
  });
  return m;
}

}  // namespace

ModelSpec model_from_config(const ModelFields& fields, const std::string& json, const std::string& file,
                            bool of_framework) {
  const ModelFieldReader f(fields, "", file);
  const std::string family = f.text("model_type", family_from_architecture(f));
  if (family.empty())
    f.fail("model_type", "is missing", "add the model family, for example \"model_type\": \"llama\"");
  if (!trainable_family(family)) return planned_model(f, family, json, file);
  return build(f, family, config_defaults(family), of_framework);
}

ModelSpec model_from_inline(const ModelFields& fields, const Settings& settings) {
  const ModelFieldReader f(fields, "model.", settings.file(), &settings);
  const std::string family = f.text("model_type", builtin_model().family);
  assert(trainable_family(family));  // the choices of the key
  ModelSpec m = build(f, family, inline_defaults(f));
  // Of a file of another framework, which is not the run file: its name.
  const std::string file = settings.where("model.hidden_size").file;
  const bool foreign = !file.empty() && file != settings.file() && !file.starts_with("--");
  m.name = foreign ? std::filesystem::path(file).stem().string() : "inline";
  return m;
}

}  // namespace trainhost::runfile
