// What a decoder-only model is, as numbers: the dimensions that decide its tensors, its memory and its step.
// Made by core/runfile from a config.json, a preset or inline keys; read by everything that plans or trains.
// Symbols of the contracts: V vocab, H hidden, L layers, A heads, K kv_heads, D head_dim, I intermediate.
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
  std::string family =
      "llama";       // model_type of the config: llama, mistral, qwen2, qwen3, or one we cannot train
  std::string name;  // for people
  std::uint64_t vocab = 0;
  std::uint32_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  std::uint64_t max_positions = 2048;
  std::uint32_t sliding_window = 0;      // keys a query sees, itself included; 0 = all before it
  std::uint32_t first_window_layer = 0;  // layers below it attend to everything (Qwen2's max_window_layers)
  bool tied = false;                     // the LM head is the embedding
  bool qkv_bias = false;                 // bias on q, k, v
  bool o_bias = false;                   // bias on the attention output
  bool mlp_bias = false;                 // bias on gate, up, down
  bool qk_norm = false;                  // RMSNorm over each head of q and k (Qwen3)
  double norm_eps = 1e-5, rope_theta = 10000.0, initializer_range = 0.02;
  RopeScaling rope;
  std::string config_json;  // the raw Hugging Face config, "" when the model was given inline

  std::uint64_t q_width() const { return std::uint64_t{heads} * head_dim; }
  std::uint64_t kv_width() const { return std::uint64_t{kv_heads} * head_dim; }
  std::uint64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  /// Window of layer l in keys, 0 = unlimited.
  std::uint32_t window(std::uint32_t l) const { return l >= first_window_layer ? sliding_window : 0; }
  bool operator==(const ModelSpec&) const = default;
};

/// Families whose step program core/plan can build and a trainer can run.
bool trainable_family(const std::string& family);

/// Throws usage_error naming the field when the numbers do not make a model: zero dimensions, heads that
/// kv_heads does not divide, an odd head_dim (RoPE turns pairs), a window of nothing, sizes whose products
/// leave 63 bits.
void validate(const ModelSpec& m);

/// Rotary frequencies inv_freq[D/2], theta^(-2i/D) with the scaling of the model. Half-split convention of
/// Hugging Face weights: the pair (i, i + D/2) is rotated by position * inv_freq[i]. "linear" divides by
/// factor; "llama3" keeps wavelengths below original/high, divides those above original/low by factor, and
/// blends between. Source: RoFormer (Su et al. 2021) eq. 15; LLaMA 3.1.
std::vector<double> rope_inv_freq(const ModelSpec& m);

}  // namespace trainhost
