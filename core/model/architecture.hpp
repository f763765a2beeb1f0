// Architecture: a decoder layer by layer, for every family that can be planned. Made from the text of a
// Hugging Face config.json of any known family, or from a ModelSpec of a trainable family. Reads no file.
// Symbols: V vocab, H hidden, L layers, A heads, K kv_heads, D head_dim, I width of an MLP, E experts.
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

/// Elements of a norm over n: kRms n, kLayer 2n (scale and shift), kScaleOnly n (LayerNorm without shift),
/// kNone 0 (OLMo 1: no learned parameters; as qk_norm: no norm), kUnscaled 0 (Llama 4's qk_norm, which has no
/// weights).
enum class NormKind : std::uint32_t { kRms, kLayer, kScaleOnly, kNone, kUnscaled };
std::uint64_t norm_elements(NormKind kind, std::uint64_t n);

/// Multi-head, grouped-query and multi-query attention. heads 0: the layer has no attention. latent: MLA; its
/// KV cache has kv_lora_rank + rope_head_dim elements per token.
struct Attention {
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0;
  bool q_bias = false, k_bias = false, v_bias = false, o_bias = false;
  NormKind qk_norm = NormKind::kNone;
  bool qk_norm_per_head = true;  // one vector of D for all heads (Qwen3, Gemma 3); false: all heads (OLMo 2)
  bool rotary = true;        // false: q and k have no rotary positions (a fourth of the layers of SmolLM3)
  bool sinks = false;        // a learned score per head that takes part in the softmax (gpt-oss)
  std::uint32_t window = 0;  // keys visible to a query; 0 = all previous
  bool chunked = false;  // the window is a chunk of the sequence, and a query sees its own chunk (Llama 4)
  bool gated = false;    // q has a second half, which scales the output of attention (Qwen3-Next, Qwen3.5)
  bool v_norm = false;   // v has a norm without weights (Gemma 4)
  bool v_is_k = false;   // v is the output of k's matrix and has none of its own (Gemma 4, full attention)
  bool reuses_kv =
      false;  // k and v of an earlier layer: no matrices and no cache (last layers of Gemma 4 E2B)
  // Only MLA. q_lora_rank 0: q is a projection of the hidden state.
  bool latent = false;
  std::uint32_t q_lora_rank = 0, kv_lora_rank = 0, rope_head_dim = 0, nope_head_dim = 0, v_head_dim = 0;

  std::uint64_t q_width() const;      // A * (D, or nope + rope)
  std::uint64_t q_rows() const;       // rows of q's matrix: twice q_width() if gated
  std::uint64_t k_width() const;      // K * D, or A * (nope + rope): input of the score product
  std::uint64_t v_width() const;      // K * D, or A * v_head_dim
  std::uint64_t out_width() const;    // A * D, or A * v_head_dim: input of the output projection
  std::uint64_t cache_width() const;  // KV cache elements per token and layer
  bool operator==(const Attention&) const = default;
};

/// Attention with a state of fixed size instead of keys and values of all tokens: gated DeltaNet (Qwen3-Next,
/// Qwen3.5) and Mamba 2 (Nemotron-H, Granite 4), whose B, C, x are k, q, v here. value_heads 0: none.
/// One matrix gives q, k, v, an output gate of the width of v, and `gates` numbers per head; q, k and v pass
/// a short convolution over time; each head has a state of key_dim x value_dim; the output has a gated norm.
/// Kimi Linear decays each channel by a gate of its own. The short convolutions of LFM2, gated at both ends,
/// are here too: without keys, states and norm, with a head of one value per channel.
struct LinearAttention {
  std::uint32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  std::uint32_t kernel = 0;  // of the convolution, in tokens
  std::uint32_t chunk = 0;   // tokens whose states are computed together
  std::uint32_t gates = 0;  // per token and head: decay and strength of writing (DeltaNet), time step (Mamba)
  std::uint32_t head_weights = 0;  // learned numbers per head: A and the bias of the decay; Mamba also D
  // Of the output gate and of the decay of each channel: both are products of two matrices over this many
  // elements, and no rows of the matrix that gives q, k and v (Kimi Linear). 0: none.
  std::uint32_t gate_rank = 0;
  bool normed = true;          // the output has a norm
  bool norm_per_head = false;  // one vector of value_dim for all heads (DeltaNet); else of all heads
  bool convolution_bias = false, in_bias = false, out_bias = false;
  bool delta = false;  // DeltaNet, which keeps more for the backward pass

  std::uint64_t value_width() const;        // value_heads * value_dim
  std::uint64_t convolution_width() const;  // of q, k and v together
  std::uint64_t in_width() const;           // q, k, v, output gate unless it has a rank, gates
  std::uint64_t state_elements() const;     // value_heads * key_dim * value_dim, per sequence
  bool operator==(const LinearAttention&) const = default;
};

/// gated: matrices gate, up and down; otherwise up and down.
struct Mlp {
  bool gated = true, up_bias = false, down_bias = false;  // up_bias: also of gate
  std::uint32_t width = 0;                                // I; 0 = no MLP

  /// Number of H x I matrices. Equal to the number of inner activations of width I per token (gate, up,
  /// product).
  std::uint64_t matrices() const { return gated ? 3 : 2; }
  /// matrices() * I: inner activations per token; also MLP elements per hidden unit, without biases.
  std::uint64_t token_width() const { return matrices() * width; }
  bool operator==(const Mlp&) const = default;
};

/// Routed experts: E MLPs, of which each token uses `active`, and `shared`, an MLP for every token (width 0:
/// none).
struct Experts {
  std::uint32_t count = 0, active = 0;  // count 0: a dense layer
  Mlp each = {}, shared = {};
  bool router_bias = false;   // E learned numbers (also DeepSeek-V3's correction bias)
  bool shared_gate = false;   // H numbers that scale the shared expert (Qwen-MoE)
  bool router_scale = false;  // H numbers that scale the router's input (Gemma 4)
  std::uint32_t latent = 0;   // width of the routed experts' input and output; 0: H (Nemotron 3 Super)
  bool latent_bias = false;   // of the two projections between H and `latent`
  bool operator==(const Experts&) const = default;
};

/// A layer has attention, linear attention or neither (Nemotron-H: one of attention, Mamba and MLP per
/// layer).
struct Layer {
  Attention attention = {};
  LinearAttention linear = {};
  Mlp mlp = {};  // of a dense layer; width 0 in most layers with experts
  Experts experts = {};
  NormKind norm = NormKind::kRms;
  // Norms of width H; 4: also after attention and MLP (Gemma 2, 3); more: Gemma 4; 1: shared norm.
  std::uint32_t norms = 2;
  std::uint32_t per_layer_width = 0;  // P of per-layer embeddings: matrices H -> P and P -> H (Gemma 4 E2B)
  bool operator==(const Layer&) const = default;
};

/// `count` consecutive equal layers; equality includes the window.
struct LayerRun {
  Layer layer;
  std::uint32_t count = 0;
  bool operator==(const LayerRun&) const = default;
};

struct Architecture {
  std::string family, name;
  std::uint64_t vocab = 0, max_positions = 0;
  std::uint32_t hidden = 0;
  std::vector<LayerRun> layers;         // in order
  std::uint64_t learned_positions = 0;  // rows of the position table of width H (GPT-2, OPT + 2); 0: none
  std::uint32_t embedding_width = 0;    // OPT's word_embed_proj_dim; H in other families
  // Per-layer embeddings (Gemma 4 E2B): a table [per_layer_vocab, layers * P], a projection H -> layers * P
  // and a norm of P. 0: none.
  std::uint64_t per_layer_vocab = 0;
  std::uint32_t per_layer_width = 0;
  NormKind embedding_norm = NormKind::kNone;
  NormKind final_norm = NormKind::kRms;
  bool tied = false, head_bias = false;
  std::vector<std::string> notes;  // unknown config fields; modules that are not counted

  std::uint32_t layer_count() const;
  bool has_experts() const;
  bool has_linear_attention() const;
  bool operator==(const Architecture&) const = default;
};

/// Families in the table of readers (families.cpp), sorted: "deepseek_v3", "gemma2", "gpt2", "llama", ...
std::span<const std::string_view> known_families();
bool known_family(std::string_view family);

/// The error for an unknown family: names the nearest known family and how to write an estimator.
Error unknown_family(std::string_view family);

/// "GPTNeoXForCausalLM" -> "gpt_neox": the family of a config that has its class but no model_type.
std::string family_of_class(std::string_view name);

/// From the fields if the family is trainable, else from m.config_json. Throws usage_error with the name of
/// the missing or invalid field, or unknown_family().
Architecture from_model(const ModelSpec& m);

/// From the text of a config.json. Same errors.
Architecture from_config(std::string_view json, std::string_view name);

/// Dimensions of a family that is not trainable, as a ModelSpec for lists and messages; config_json = `json`.
ModelSpec outline(const Architecture& a, std::string_view json);

/// The same for an unknown family, for estimators of plugins: reads the usual field names, 0 for missing
/// fields. Does not throw for values of fields.
ModelSpec outline_of_unknown(std::string_view family, std::string_view json);

/// Parameter counts in closed form, O(kinds of layers). total: distinct trained weights (a tied head counts
/// once; buffers and masks do not). active: parameters used by one token, that is without inactive experts.
struct Counts {
  std::uint64_t total = 0, active = 0, head = 0, final_norm = 0;
  std::uint64_t embedding = 0;                    // with positions and their norm
  std::uint64_t first_layer = 0, last_layer = 0;  // of one layer
};
Counts count(const Architecture& a);
std::uint64_t layer_elements(const Layer& l, std::uint64_t hidden);
std::uint64_t active_layer_elements(const Layer& l, std::uint64_t hidden);

/// Presets of families that are planned but not trained, with their config_json; sorted by name.
std::span<const ModelSpec> planned_presets();
/// In the order of planned_presets(). This and find_planned_preset() do not read the other presets.
std::span<const std::string> planned_preset_names();
const ModelSpec* find_planned_preset(std::string_view name);

}  // namespace trainhost::model
