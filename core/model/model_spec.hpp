// ModelSpec: the dimensions and flags of a decoder-only model of a trainable family. core/runfile makes it
// from a config.json, a preset or inline keys; planning and training read it. Models that are only planned
// are described by model::Architecture. Symbols: V vocab, H hidden, L layers, A heads, K kv_heads, D
// head_dim, I intermediate.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost {

enum class RopeKind : std::uint32_t { kDefault = 0, kLinear = 1, kLlama3 = 2 };

struct RopeScaling {
  RopeKind kind = RopeKind::kDefault;
  double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
  std::uint64_t original_max_positions = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelSpec {
  std::string family = "llama";  // model_type of the config; trainable: llama, mistral, qwen2, qwen3
  std::string name;              // for messages and lists
  std::uint64_t vocab = 0;
  std::uint32_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  std::uint64_t max_positions = 2048;
  std::uint32_t sliding_window = 0;      // keys visible to a query, itself included; 0 = all previous
  std::uint32_t first_window_layer = 0;  // layers before it have no window (Qwen2's max_window_layers)
  bool tied = false;                     // the LM head is the embedding
  bool qkv_bias = false;                 // bias on q, k, v
  bool o_bias = false;                   // bias on the attention output
  bool mlp_bias = false;                 // bias on gate, up, down
  bool qk_norm = false;                  // RMSNorm over each head of q and k (Qwen3)
  double norm_eps = 1e-5, rope_theta = 10000.0, initializer_range = 0.02;
  RopeScaling rope;
  std::string config_json;  // the Hugging Face config.json, "" for inline keys

  std::uint64_t q_width() const { return std::uint64_t{heads} * head_dim; }
  std::uint64_t kv_width() const { return std::uint64_t{kv_heads} * head_dim; }
  std::uint64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  /// Attention window of layer l in keys; 0 = unlimited.
  std::uint32_t window(std::uint32_t l) const { return l >= first_window_layer ? sliding_window : 0; }
  bool operator==(const ModelSpec&) const = default;
};

/// Whether core/step can build a step program for the family, so that trainers can run it.
bool trainable_family(const std::string& family);

/// Throws usage_error with the name of the invalid field: zero dimensions, heads not divisible by kv_heads,
/// odd head_dim (RoPE rotates pairs), sizes whose products exceed 63 bits.
void validate(const ModelSpec& m);

/// Rotary frequencies inv_freq[D/2], theta^(-2i/D) with the scaling of the model. Half-split convention of
/// Hugging Face weights: the pair (i, i + D/2) is rotated by position * inv_freq[i]. "linear" divides by
/// factor; "llama3" keeps wavelengths below original/high, divides those above original/low by factor, and
/// blends between. Source: RoFormer (Su et al. 2021) eq. 15; LLaMA 3.1.
std::vector<double> rope_inv_freq(const ModelSpec& m);

}  // namespace trainhost
