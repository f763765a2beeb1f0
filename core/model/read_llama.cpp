// Readers of LLaMA-like families: RMSNorm, rotary positions, gated MLP. Defaults of absent fields are those
// of the family's transformers class. Fused weights (Phi-3's qkv, Baichuan's W_pack) are counted as their
// parts.
#include "core/model/family_readers.hpp"

namespace trainhost::model {

Architecture read_llama(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  Layer l{.attention = read_heads(f, a.hidden), .mlp = read_gated_mlp(f)};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  l.mlp.up_bias = l.mlp.down_bias = f.flag({"mlp_bias"}, false);
  append_equal(a, l, read_layer_count(f));
  return a;
}

// Granite adds only scales without weights (embedding_multiplier and others).
Architecture read_granite(ConfigFields& f) { return read_llama(f); }

Architecture read_mistral(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  const Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8}), .mlp = read_gated_mlp(f)};
  const std::uint32_t window = read_window(f, 4096);
  append_windowed(a, l, read_windows(f, read_layer_count(f), window, [](std::uint32_t) { return true; }));
  return a;
}

Architecture read_qwen2(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 32768);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 32}), .mlp = read_gated_mlp(f)};
  // Qwen2 has biases of q, k and v but no field for them.
  set_qkv_bias(l.attention, true);
  append_windowed(a, l, read_qwen_windows(f, read_layer_count(f)));
  return a;
}

Architecture read_qwen3(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 32768);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 32, .head_dim = 128}), .mlp = read_gated_mlp(f)};
  l.attention.qk_norm = NormKind::kRms;
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  append_windowed(a, l, read_qwen_windows(f, read_layer_count(f)));
  return a;
}

// sliding_window applies to all layers; absent means none.
Architecture read_phi3(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 4096);
  const Layer l{.attention = read_heads(f, a.hidden), .mlp = read_gated_mlp(f)};
  const std::uint32_t window = read_window(f, 0);
  append_windowed(a, l, read_windows(f, read_layer_count(f), window, [](std::uint32_t) { return true; }));
  return a;
}

/// Norms without learned parameters.
Architecture read_olmo(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  a.final_norm = NormKind::kNone;
  Layer l{.attention = read_heads(f, a.hidden), .mlp = read_gated_mlp(f), .norm = NormKind::kNone};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// Norms after attention and MLP, two per layer; the norms of q and k have the width of all heads.
Architecture read_olmo2(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  Layer l{.attention = read_heads(f, a.hidden), .mlp = read_gated_mlp(f)};
  l.attention.qk_norm = NormKind::kRms;
  l.attention.qk_norm_per_head = false;
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  append_equal(a, l, read_layer_count(f));
  return a;
}

Architecture read_internlm2(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  Layer l{.attention = read_heads(f, a.hidden), .mlp = read_gated_mlp(f)};
  set_all_biases(l.attention, f.flag({"bias"}, true));
  append_equal(a, l, read_layer_count(f));
  return a;
}

// Positions by ALiBi (13B) or rotary (7B): no table in either.
Architecture read_baichuan(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 4096);
  append_equal(a, Layer{.attention = read_heads(f, a.hidden), .mlp = read_gated_mlp(f)}, read_layer_count(f));
  return a;
}

/// LayerNorms; one per layer with parallel attention and MLP. The norms of q and k have one vector per head
/// and no shift.
Architecture read_stablelm(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 4096);
  a.final_norm = NormKind::kLayer;
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 32}),
          .mlp = read_gated_mlp(f),
          .norm = NormKind::kLayer};
  l.norms = f.flag({"use_parallel_residual"}, false) ? 1 : 2;
  set_qkv_bias(l.attention, f.flag({"use_qkv_bias"}, false));
  if (f.flag({"qk_layernorm"}, false)) l.attention.qk_norm = NormKind::kScaleOnly;
  l.attention.qk_norm_per_head = false;
  append_equal(a, l, read_layer_count(f));
  return a;
}

}  // namespace trainhost::model
