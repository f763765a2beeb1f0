// What a decoder is, layer by layer, in the terms that decide its parameters and its memory: made from a
// Hugging Face config.json of any family that we know, or from a ModelSpec of those that we train. Pure: no
// file is read here. Symbols: V vocab, H hidden, L layers, A heads, K kv_heads, D head_dim, I the width of an
// MLP, E experts.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/model_spec.hpp"

namespace trainhost::model {

/// Elements of one norm over n: kRms n, kLayer 2n (scale and shift), kScaleOnly n (a LayerNorm without
/// shift), kNone 0 (OLMo 1: nothing is learned).
enum class NormKind : std::uint32_t { kRms, kLayer, kScaleOnly, kNone };
std::uint64_t norm_elements(NormKind kind, std::uint64_t n);

/// Multi-head, grouped and multi-query attention; latent: MLA, whose cache is kv_lora_rank + rope_head_dim a
/// token.
struct Attention {
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0;
  bool q_bias = false, k_bias = false, v_bias = false, o_bias = false;
  NormKind qk_norm = NormKind::kNone;
  bool qk_norm_per_head =
      true;  // one vector of D for all heads (Qwen3, Gemma 3); false: over the whole width (OLMo 2)
  std::uint32_t window = 0;  // keys a query sees; 0 = all before it
  // MLA alone: q_lora_rank 0 = q comes from the hidden state directly.
  bool latent = false;
  std::uint32_t q_lora_rank = 0, kv_lora_rank = 0, rope_head_dim = 0, nope_head_dim = 0, v_head_dim = 0;

  std::uint64_t q_width() const;      // A * (D, or nope + rope)
  std::uint64_t k_width() const;      // K * D, or A * (nope + rope): as the attention product reads it
  std::uint64_t v_width() const;      // K * D, or A * v_head_dim
  std::uint64_t out_width() const;    // A * D, or A * v_head_dim: what the output projection reads
  std::uint64_t cache_width() const;  // elements a token and layer takes in a KV cache
  bool operator==(const Attention&) const = default;
};

/// gated: gate, up and down with silu or gelu between; plain: up and down.
struct Mlp {
  bool gated = true, up_bias = false, down_bias = false;  // up_bias: of gate and up
  std::uint32_t width = 0;                                // I; 0 = there is none

  /// Matrices of H x I, gate, up and down: as many numbers of width I a token makes inside, gate, up and
  /// their product.
  std::uint64_t matrices() const { return gated ? 3 : 2; }
  /// I times that: numbers a token makes inside, and the MLP's elements but its biases for each of H.
  std::uint64_t token_width() const { return matrices() * width; }
  bool operator==(const Mlp&) const = default;
};

/// Routed experts: E MLPs of which a token uses `active`, beside `shared`, an MLP that every token uses
/// (width 0: none).
struct Experts {
  std::uint32_t count = 0, active = 0;  // count 0: a dense layer
  Mlp each = {}, shared = {};
  bool router_bias =
      false;  // E learned numbers beside the router (DeepSeek-V3's correction bias counts as one)
  bool shared_gate = false;  // H numbers that scale the shared expert (Qwen-MoE)
  bool operator==(const Experts&) const = default;
};

struct Layer {
  Attention attention = {};
  Mlp mlp = {};  // of a dense layer; width 0 where `experts` stand in its place
  Experts experts = {};
  NormKind norm = NormKind::kRms;
  std::uint32_t norms =
      2;  // of width H: 2; 4 with norms behind as well (Gemma 2, 3); 1 where attention and MLP share one
  bool operator==(const Layer&) const = default;
};

/// `count` equal layers in a row. Windows of layers are part of being equal.
struct LayerRun {
  Layer layer;
  std::uint32_t count = 0;
  bool operator==(const LayerRun&) const = default;
};

struct Architecture {
  std::string family, name;
  std::uint64_t vocab = 0, max_positions = 0;
  std::uint32_t hidden = 0;
  std::vector<LayerRun> layers;  // in order
  std::uint64_t learned_positions =
      0;  // rows of a position table of width H (GPT-2, OPT + 2); 0: rotary, ALiBi
  std::uint32_t embedding_width = 0;  // OPT's word_embed_proj_dim; H where it is not another
  NormKind embedding_norm = NormKind::kNone;
  NormKind final_norm = NormKind::kRms;
  bool tied = false, head_bias = false;
  std::vector<std::string>
      notes;  // fields that change memory and are not understood, by name; extra modules left out

  std::uint32_t layer_count() const;
  bool has_experts() const;
  bool operator==(const Architecture&) const = default;
};

/// Families with an entry in the table of readers, sorted: "deepseek_v3", "gemma2", "gpt2", "llama", ...
std::span<const std::string_view> known_families();
bool known_family(std::string_view family);

/// The refusal of a family that nobody here knows: names the nearest one and the way to write an estimator
/// for it.
Error unknown_family(std::string_view family);

/// "GPTNeoXForCausalLM" -> "gpt_neox": the family of a config that states its class and no model_type.
std::string family_of_class(std::string_view name);

/// From the fields of a trainable family, else from m.config_json. Throws usage_error naming the field that
/// is missing or impossible; for a family that is not known, the error names the nearest one and how to write
/// an estimator for it.
Architecture from_model(const ModelSpec& m);

/// From the text of a config.json alone. The same errors.
Architecture from_config(std::string_view json, std::string_view name);

/// The dimensions of a family that we do not train, as a ModelSpec: what lists and messages show. config_json
/// is kept.
ModelSpec outline(const Architecture& a, std::string_view json);

/// The same of a family that nobody here knows, for estimators that do: what its config says under the names
/// in use, 0 where it says nothing. Never throws for what a field holds.
ModelSpec outline_of_unknown(std::string_view family, std::string_view json);

/// Parameters. Closed form, O(kinds of layers). total = distinct trained weights: a tied head counts once;
/// buffers and masks do not count. active = what one token uses: routed experts that it does not use left
/// out.
struct Counts {
  std::uint64_t total = 0, active = 0, embedding = 0 /* with positions and their norm */, head = 0,
                final_norm = 0;
  std::uint64_t first_layer = 0, last_layer = 0;  // of one layer
};
Counts count(const Architecture& a);
std::uint64_t layer_elements(const Layer& l, std::uint64_t hidden);
std::uint64_t active_layer_elements(const Layer& l, std::uint64_t hidden);

/// Every trained tensor: the dumb way that the closed form is held against, and what optimizers that look at
/// shapes need.
struct TensorShape {
  std::string name;                              // "layers.3.attention.q"
  std::int32_t layer = -1;                       // -1: of none
  std::uint64_t rows = 0, cols = 1, copies = 1;  // copies: equal tensors, one an expert
  std::uint64_t elements() const { return rows * cols * copies; }
};
std::vector<TensorShape> tensors(const Architecture& a);

/// Models of families that we plan and do not train, by name; each carries its config_json. Sorted by name.
std::span<const ModelSpec> planned_presets();
const ModelSpec* find_planned_preset(std::string_view name);

}  // namespace trainhost::model
