// Reads a config.json into a ModelSpec, and writes a config.json that transformers can load. The rules of the
// fields are in model_fields.cpp.

#include "core/base/json_value.hpp"
#include "core/runfile/model_fields.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/run_config.hpp"

namespace fs = std::filesystem;

namespace trainhost::runfile {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 4 << 20;  // published configs have a few KiB

using Json = JsonValue;

/// Class names of transformers; AutoModelForCausalLM selects the class by this entry.
const char* architecture(const std::string& family) {
  if (family == "mistral") return "MistralForCausalLM";
  if (family == "qwen2") return "Qwen2ForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  return "LlamaForCausalLM";
}

const char* torch_name(DType t) {
  return t == DType::kBF16 ? "bfloat16" : t == DType::kF16 ? "float16" : "float32";
}

/// null for the default kind, as transformers writes it.
Json rope_scaling(const RopeScaling& r) {
  switch (r.kind) {
    case RopeKind::kDefault:
      break;
    case RopeKind::kLinear:
      return {{"rope_type", "linear"}, {"factor", r.factor}};
    case RopeKind::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", r.factor},
              {"low_freq_factor", r.low_freq_factor},
              {"high_freq_factor", r.high_freq_factor},
              {"original_max_position_embeddings", r.original_max_positions}};
  }
  return nullptr;
}

/// transformers has three fields for one thing. Without a window, max_window_layers is the number of layers:
/// then no layer uses one, whatever a reader makes of the other two fields.
void write_window(const ModelSpec& m, Json& out) {
  if (m.family == "llama") return;
  out["sliding_window"] = m.sliding_window ? Json(m.sliding_window) : Json(nullptr);
  if (m.family == "mistral") return;
  out["use_sliding_window"] = m.sliding_window != 0;
  out["max_window_layers"] = m.sliding_window ? m.first_window_layer : m.layers;
}

/// Token ids belong to the tokenizer; they are copied from the config that the model was read from.
void write_token_ids(const ModelSpec& m, Json& out) {
  JsonValue source;
  // Parsed when the model was read, so this cannot throw.
  if (!m.config_json.empty()) source = parse_json(m.config_json);  // the text was parsed before
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const JsonValue* ids = source.find(name);
    out[name] = ids ? *ids : Json(nullptr);
  }
}

/// The name of a model is that of its file, or of its folder if the file is config.json.
std::string name_of(const fs::path& file) {
  const std::string stem = file.stem().string();
  return stem == "config" && file.has_parent_path()
             ? fs::absolute(file).lexically_normal().parent_path().filename().string()
             : stem;
}

}  // namespace

/// The text is kept with the model: token ids and fields unknown to this program are copied from it.
ModelSpec parse_model_config(const std::string& json, const std::string& name, bool of_framework) {
  ModelSpec m = model_from_config(read_config_fields(json, name), json, name, of_framework);
  m.name = name_of(name);
  m.config_json = json;
  return m;
}

ModelSpec read_model_config(const fs::path& config_json, bool of_framework) {
  const std::string text = read_text_file(config_json, kMaxConfigBytes, "model.config", {});
  return parse_model_config(text, config_json.string(), of_framework);
}

std::optional<DType> model_config_dtype(const ModelSpec& m) {
  if (m.config_json.empty()) return std::nullopt;
  const JsonValue source = parse_json(m.config_json);  // parsed when the model was read, so this cannot throw
  const JsonValue* type = source.find("dtype");        // transformers 4.56 and later; before: torch_dtype
  if (!type || !type->is_string()) type = source.find("torch_dtype");
  if (!type || !type->is_string()) return std::nullopt;
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16})
    if (type->string == torch_name(t)) return t;
  return std::nullopt;
}

/// Every field is written, also where it equals the default of transformers: defaults differ between
/// versions. The other fields of the source are kept: transformers and other software read them.
std::string model_config_json(const ModelSpec& m, DType dtype) {
  Json out;
  out["architectures"] = {architecture(m.family)};
  out["model_type"] = m.family;
  out["vocab_size"] = m.vocab;
  out["hidden_size"] = m.hidden;
  out["intermediate_size"] = m.intermediate;
  out["num_hidden_layers"] = m.layers;
  out["num_attention_heads"] = m.heads;
  out["num_key_value_heads"] = m.kv_heads;
  out["head_dim"] = m.head_dim;
  out["hidden_act"] = "silu";
  out["max_position_embeddings"] = m.max_positions;
  out["rms_norm_eps"] = m.norm_eps;
  out["rope_theta"] = m.rope_theta;
  out["rope_scaling"] = rope_scaling(m.rope);
  out["initializer_range"] = m.initializer_range;
  out["tie_word_embeddings"] = m.tied;
  if (m.family == "llama" || m.family == "qwen3") out["attention_bias"] = m.qkv_bias;
  if (m.family == "llama") out["mlp_bias"] = m.mlp_bias;
  write_window(m, out);
  out["attention_dropout"] = 0.0;
  write_token_ids(m, out);
  out["use_cache"] = true;
  out["torch_dtype"] = torch_name(dtype);
  if (m.config_json.empty()) return out.dump(2) + "\n";
  const Json source = parse_json(m.config_json);
  for (const JsonMember& field : source.members)
    if (field.key == "dtype")
      out["dtype"] = torch_name(dtype);
    else if (!out.find(field.key))
      out[field.key] = field.value;
  return out.dump(2) + "\n";
}

}  // namespace trainhost::runfile
