// What the readers share: one function a family, from the fields of its config.json to layers, in files by
// kinship (read_llama, read_gemma, read_gpt, read_experts). families.cpp holds the table. Inside core/model
// alone.
#pragma once
#include <functional>

#include "core/model/architecture.hpp"
#include "core/model/config_fields.hpp"

namespace trainhost::model {

using Reader = Architecture (*)(Fields& f);
struct Family {
  std::string_view name;
  Reader read;
};
/// Sorted by name.
std::span<const Family> families();

Architecture from_fields(const ModelSpec& m);

/// One more layer behind the others; equal ones in a row share an entry.
void append(Architecture& a, const Layer& l);

/// V, H, positions and the tied head. An absent tie_word_embeddings means `tied`, absent positions
/// `positions`.
Architecture base(Fields& f, bool tied, std::uint32_t positions = 2048);
std::uint32_t layers_of(Fields& f);

/// What an absent field means to the family's class: kv_heads 0 = as many as heads, head_dim 0 = H / A.
struct Absent {
  std::uint32_t kv_heads = 0, head_dim = 0;
};
/// Heads with their widths. Throws where kv_heads does not divide heads, or heads H when no head_dim is
/// given.
Attention heads_of(Fields& f, std::uint32_t hidden, Absent absent = {});
void bias_qkv(Attention& a, bool on);
void bias_all(Attention& a, bool on);

/// gate, up and down of intermediate_size; no biases.
Mlp gated_mlp(Fields& f);

/// The window of each layer, by layer_types where the config has them, else by `slides`. 0 = all before it.
std::vector<std::uint32_t> windows_of(Fields& f, std::uint32_t layers, std::uint32_t window,
                                      const std::function<bool(std::uint32_t)>& slides);
/// `layers` copies of l, each with its own window.
void append_windowed(Architecture& a, Layer l, const std::vector<std::uint32_t>& windows);
void append_equal(Architecture& a, const Layer& l, std::uint32_t layers);

/// sliding_window where the config has one; null is none; `absent` where it says nothing.
std::uint32_t window_of(Fields& f, std::uint32_t absent);
/// Qwen's three fields together: use_sliding_window, sliding_window, max_window_layers.
std::vector<std::uint32_t> qwen_windows(Fields& f, std::uint32_t layers);

// read_llama.cpp
Architecture read_baichuan(Fields& f);
Architecture read_granite(Fields& f);
Architecture read_internlm2(Fields& f);
Architecture read_llama(Fields& f);
Architecture read_mistral(Fields& f);
Architecture read_olmo(Fields& f);
Architecture read_olmo2(Fields& f);
Architecture read_phi3(Fields& f);
Architecture read_qwen2(Fields& f);
Architecture read_qwen3(Fields& f);
Architecture read_stablelm(Fields& f);
// read_gemma.cpp
Architecture read_gemma(Fields& f);
Architecture read_gemma2(Fields& f);
Architecture read_gemma3(Fields& f);
Architecture read_gemma3_text(Fields& f);
// read_gpt.cpp
Architecture read_falcon(Fields& f);
Architecture read_gpt2(Fields& f);
Architecture read_gpt_neox(Fields& f);
Architecture read_mpt(Fields& f);
Architecture read_opt(Fields& f);
Architecture read_phi(Fields& f);
Architecture read_starcoder2(Fields& f);
// read_experts.cpp
Architecture read_deepseek(Fields& f);
Architecture read_deepseek_v2(Fields& f);
Architecture read_deepseek_v3(Fields& f);
Architecture read_mixtral(Fields& f);
Architecture read_qwen2_moe(Fields& f);
Architecture read_qwen3_moe(Fields& f);

}  // namespace trainhost::model
