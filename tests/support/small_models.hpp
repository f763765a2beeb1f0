// Small models with every feature of the trained families, one or two at a time, and data for them. For tests
// alone.
#pragma once
#include <ostream>
#include <random>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/model/tensors.hpp"
#include "tests/support/reference_model.hpp"

namespace trainhost::test {

struct NamedModel {
  const char* what;
  ModelSpec spec;
  std::uint32_t seq;
};
inline std::ostream& operator<<(std::ostream& o, const NamedModel& z) { return o << z.what; }

inline ModelSpec small_model(const char* family, std::uint32_t vocab, std::uint32_t hidden,
                             std::uint32_t layers, std::uint32_t heads, std::uint32_t kv_heads,
                             std::uint32_t head_dim, std::uint32_t intermediate) {
  ModelSpec m;
  m.family = family, m.vocab = vocab, m.hidden = hidden, m.layers = layers, m.heads = heads,
  m.kv_heads = kv_heads;
  m.head_dim = head_dim, m.intermediate = intermediate, m.initializer_range = 0.3;
  return m;
}

/// llama untied and tied, grouped heads with A*D != H, all biases, Qwen2, Qwen3, Mistral's window, a window
/// from a later layer on, both rope scalings.
inline std::vector<NamedModel> small_models() {
  std::vector<NamedModel> models;
  auto add = [&](const char* what, ModelSpec m, std::uint32_t seq) -> ModelSpec& {
    return models.push_back({what, std::move(m), seq}), models.back().spec;
  };
  add("llama", small_model("llama", 19, 12, 2, 2, 2, 6, 10), 7);
  add("llama, tied, grouped heads wider than hidden", small_model("llama", 23, 10, 2, 4, 2, 4, 14), 9).tied =
      true;
  ModelSpec& biased = add("llama with o and mlp biases", small_model("llama", 17, 8, 2, 2, 1, 4, 6), 5);
  biased.qkv_bias = biased.o_bias = biased.mlp_bias = true;
  add("qwen2", small_model("qwen2", 21, 12, 2, 3, 1, 4, 9), 8).qkv_bias = true;
  add("qwen3", small_model("qwen3", 21, 12, 2, 4, 2, 6, 9), 8).qk_norm = true;
  add("mistral", small_model("mistral", 16, 8, 2, 2, 1, 4, 11), 13).sliding_window = 4;
  ModelSpec& late =
      add("qwen2 with a window from layer 1 on", small_model("qwen2", 16, 8, 3, 2, 2, 4, 7), 11);
  late.sliding_window = 3, late.first_window_layer = 1, late.qkv_bias = true;
  ModelSpec& linear = add("llama, linear rope", small_model("llama", 16, 8, 1, 2, 2, 4, 8), 6);
  linear.rope = {RopeKind::kLinear, 4.0, 1.0, 4.0, 8192};
  ModelSpec& llama3 = add("llama, llama3 rope", small_model("llama", 16, 8, 1, 1, 1, 8, 8), 12);
  llama3.rope = {RopeKind::kLlama3, 8.0, 1.0, 4.0, 16}, llama3.rope_theta = 100.0;
  return models;
}

/// Weights that are exact in f32; norms around one, so that a missing norm weight shows.
inline reference::Weights random_weights(const ModelSpec& m, unsigned seed) {
  std::mt19937 g(seed);
  reference::Weights w;
  for (const TensorInfo& t : tensors(m)) {
    reference::Vec& v = w[t.name];
    v.resize(t.elements());
    const bool norm = t.name.find("norm") != std::string::npos;
    for (double& x : v)
      x = static_cast<float>((norm ? 1.0 : 0.0) +
                             (static_cast<double>(g()) / 4294967296.0 * 2 - 1) * (norm ? 0.3 : 0.5));
  }
  return w;
}

inline reference::Ids random_tokens(std::size_t n, std::uint64_t vocab, unsigned seed) {
  std::mt19937 g(seed);
  reference::Ids ids(n);
  for (std::int32_t& i : ids) i = static_cast<std::int32_t>(g() % vocab);
  return ids;
}
/// The same with every seventh target not counted.
inline reference::Ids random_targets(std::size_t n, std::uint64_t vocab, unsigned seed) {
  reference::Ids ids = random_tokens(n, vocab, seed);
  for (std::size_t i = 3; i < n; i += 7) ids[i] = -100;
  return ids;
}

}  // namespace trainhost::test
