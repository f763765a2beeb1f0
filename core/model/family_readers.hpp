// Readers of config.json, one function per family, and their shared parts; private to core/model. The readers
// are in the files read_*.cpp; the table is in families.cpp.
#pragma once
#include <functional>

#include "core/model/architecture.hpp"
#include "core/model/config_fields.hpp"

namespace trainhost::model {

using Reader = Architecture (*)(ConfigFields& f);
struct Family {
  std::string_view name;
  Reader read;
};
/// Sorted by name.
std::span<const Family> families();

Architecture from_fields(const ModelSpec& m);

/// Appends a layer; consecutive equal layers share one LayerRun.
void append(Architecture& a, const Layer& l);

/// Reads V, H, max_positions and tied. Defaults of absent fields: `tied` and `positions`.
Architecture read_dimensions(ConfigFields& f, bool tied, std::uint32_t positions = 2048);
std::uint32_t read_layer_count(ConfigFields& f);

/// Defaults of absent fields in the family's transformers class: kv_heads 0 = heads, head_dim 0 = H / A.
struct HeadDefaults {
  std::uint32_t kv_heads = 0, head_dim = 0;
};
/// Reads heads, kv_heads and head_dim. Throws if kv_heads does not divide heads, or if heads does not divide
/// H and there is no head_dim.
Attention read_heads(ConfigFields& f, std::uint32_t hidden, HeadDefaults defaults = {});
void set_qkv_bias(Attention& a, bool on);
void set_all_biases(Attention& a, bool on);

/// A gated MLP of width intermediate_size without biases.
Mlp read_gated_mlp(ConfigFields& f);

/// Routed experts of width `width`. Throws if the number of active experts exceeds the number of experts.
Experts read_routed_experts(ConfigFields& f, FieldNames count, FieldNames active, std::uint32_t width);
/// Appends one layer per window: with experts if sparse(layer), else with a dense MLP.
void append_mixed(Architecture& a, const Layer& l, const Mlp& dense, const Experts& experts,
                  const std::vector<std::uint32_t>& windows,
                  const std::function<bool(std::uint32_t)>& sparse);
/// Adds a note about multi-token prediction modules, which are not counted.
void note_prediction_modules(ConfigFields& f, Architecture& a);

/// The decoder of a multimodal model: the fields of text_config, read by `reader`. Notes that the towers are
/// not counted. tie_word_embeddings of the whole config has priority over that of text_config.
Architecture read_text_config(ConfigFields& f, Reader reader);
/// Of a multimodal model whose config has the fields of the decoder at the top.
void note_towers(ConfigFields& f, Architecture& a);

/// Types of layers, one per layer: layer_types, or the result of otherwise(layer) without it. Throws unless
/// there is one per layer and each is in `known`; old names are replaced ("mamba": linear_attention,
/// "attention": full_attention).
std::vector<std::string> read_layer_types(ConfigFields& f, std::string_view field, std::uint32_t layers,
                                          std::initializer_list<std::string_view> known,
                                          const std::function<std::string(std::uint32_t)>& otherwise);

/// Window of each layer: by layer_types if present, else by slides(layer). 0 = unlimited.
std::vector<std::uint32_t> read_windows(ConfigFields& f, std::uint32_t layers, std::uint32_t window,
                                        const std::function<bool(std::uint32_t)>& slides);
/// Appends one copy of `l` per window.
void append_windowed(Architecture& a, Layer l, const std::vector<std::uint32_t>& windows);
void append_equal(Architecture& a, const Layer& l, std::uint32_t layers);

/// The field sliding_window; null means 0, absent means `otherwise`.
std::uint32_t read_window(ConfigFields& f, std::uint32_t otherwise);
/// Window of each layer from Qwen's use_sliding_window, sliding_window and max_window_layers.
std::vector<std::uint32_t> read_qwen_windows(ConfigFields& f, std::uint32_t layers);

// read_ernie.cpp
Architecture read_ernie4_5(ConfigFields& f);
Architecture read_ernie4_5_moe(ConfigFields& f);
Architecture read_hunyuan_v1_dense(ConfigFields& f);
Architecture read_hunyuan_v1_moe(ConfigFields& f);
Architecture read_minimax_m2(ConfigFields& f);
// read_gemma4.cpp
Architecture read_gemma4(ConfigFields& f);
Architecture read_gemma4_text(ConfigFields& f);
// read_granite.cpp
Architecture read_granite(ConfigFields& f);
Architecture read_granitemoe(ConfigFields& f);
Architecture read_granitemoehybrid(ConfigFields& f);
Architecture read_granitemoeshared(ConfigFields& f);
// read_lfm2.cpp
Architecture read_lfm2(ConfigFields& f);
Architecture read_lfm2_moe(ConfigFields& f);
Architecture read_lfm2_vl(ConfigFields& f);
// read_llama4.cpp
Architecture read_llama4(ConfigFields& f);
Architecture read_llama4_text(ConfigFields& f);
// read_mistral3.cpp
Architecture read_ministral(ConfigFields& f);
Architecture read_ministral3(ConfigFields& f);
Architecture read_mistral3(ConfigFields& f);
// read_nemotron.cpp
Architecture read_nemotron(ConfigFields& f);
Architecture read_nemotron_h(ConfigFields& f);
// read_qwen_next.cpp
Architecture read_qwen3_5(ConfigFields& f);
Architecture read_qwen3_5_moe(ConfigFields& f);
Architecture read_qwen3_5_moe_text(ConfigFields& f);
Architecture read_qwen3_5_text(ConfigFields& f);
Architecture read_qwen3_next(ConfigFields& f);
// read_qwen_vl.cpp
Architecture read_qwen2_vl(ConfigFields& f);
Architecture read_qwen2_vl_text(ConfigFields& f);
Architecture read_qwen3_vl(ConfigFields& f);
Architecture read_qwen3_vl_moe(ConfigFields& f);
Architecture read_qwen3_vl_text(ConfigFields& f);
// read_llama.cpp
Architecture read_baichuan(ConfigFields& f);
Architecture read_cohere(ConfigFields& f);
Architecture read_cohere2(ConfigFields& f);
Architecture read_glm(ConfigFields& f);
Architecture read_glm4(ConfigFields& f);
Architecture read_internlm2(ConfigFields& f);
Architecture read_llama(ConfigFields& f);
Architecture read_mistral(ConfigFields& f);
Architecture read_olmo(ConfigFields& f);
Architecture read_olmo2(ConfigFields& f);
Architecture read_olmo3(ConfigFields& f);
Architecture read_phi3(ConfigFields& f);
Architecture read_qwen2(ConfigFields& f);
Architecture read_qwen3(ConfigFields& f);
Architecture read_seed_oss(ConfigFields& f);
Architecture read_smollm3(ConfigFields& f);
Architecture read_stablelm(ConfigFields& f);
// read_gemma.cpp
Architecture read_gemma(ConfigFields& f);
Architecture read_gemma2(ConfigFields& f);
Architecture read_gemma3(ConfigFields& f);
Architecture read_gemma3_text(ConfigFields& f);
// read_gpt.cpp
Architecture read_falcon(ConfigFields& f);
Architecture read_gpt2(ConfigFields& f);
Architecture read_gpt_neox(ConfigFields& f);
Architecture read_mpt(ConfigFields& f);
Architecture read_opt(ConfigFields& f);
Architecture read_phi(ConfigFields& f);
Architecture read_starcoder2(ConfigFields& f);
// read_experts.cpp
Architecture read_deepseek(ConfigFields& f);
Architecture read_deepseek_v2(ConfigFields& f);
Architecture read_deepseek_v3(ConfigFields& f);
Architecture read_glm4_moe(ConfigFields& f);
Architecture read_glm4_moe_lite(ConfigFields& f);
Architecture read_gpt_oss(ConfigFields& f);
Architecture read_kimi_k25(ConfigFields& f);
Architecture read_kimi_linear(ConfigFields& f);
Architecture read_mistral4(ConfigFields& f);
Architecture read_mixtral(ConfigFields& f);
Architecture read_phimoe(ConfigFields& f);
Architecture read_qwen2_moe(ConfigFields& f);
Architecture read_qwen3_moe(ConfigFields& f);

}  // namespace trainhost::model
