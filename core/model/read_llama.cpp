// Readers of LLaMA-like families: RMSNorm, rotary positions, gated MLP. Defaults of absent fields are those
// of the family's transformers class. Fused weights (Phi-3's qkv, Baichuan's W_pack) are counted as their
// parts.
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

Layer olmo2_layer(ConfigFields& f, std::uint32_t hidden) {
  Layer l{.attention = read_heads(f, hidden), .mlp = read_gated_mlp(f)};
  l.attention.qk_norm = NormKind::kRms;
  l.attention.qk_norm_per_head = false;
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  return l;
}

Layer glm_layer(ConfigFields& f, std::uint32_t hidden) {
  Layer l{.attention = read_heads(f, hidden, {.kv_heads = 2, .head_dim = 128}), .mlp = read_gated_mlp(f)};
  set_qkv_bias(l.attention, f.flag({"attention_bias"}, false));
  return l;
}

/// LayerNorms without shift, one per layer, because attention and MLP are parallel.
Layer cohere_layer(ConfigFields& f, std::uint32_t hidden) {
  Layer l{
      .attention = read_heads(f, hidden), .mlp = read_gated_mlp(f), .norm = NormKind::kScaleOnly, .norms = 1};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  return l;
}

}  // namespace

Architecture read_llama(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  Layer l{.attention = read_heads(f, a.hidden), .mlp = read_gated_mlp(f)};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  l.mlp.up_bias = l.mlp.down_bias = f.flag({"mlp_bias"}, false);
  append_equal(a, l, read_layer_count(f));
  return a;
}

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
  append_equal(a, olmo2_layer(f, a.hidden), read_layer_count(f));
  return a;
}

/// OLMo 2 with windows, except in every fourth layer.
Architecture read_olmo3(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  const Layer l = olmo2_layer(f, a.hidden);
  const std::uint32_t window = read_window(f, 4096);
  append_windowed(
      a, l, read_windows(f, read_layer_count(f), window, [](std::uint32_t i) { return (i + 1) % 4 != 0; }));
  return a;
}

/// Every fourth layer has no rotary positions; a window would apply to these layers.
Architecture read_smollm3(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 32768);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 4}), .mlp = read_gated_mlp(f)};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  l.mlp.up_bias = l.mlp.down_bias = f.flag({"mlp_bias"}, false);
  const std::vector<std::uint32_t> listed = f.numbers("no_rope_layers");  // 1: has rotary positions
  const std::uint32_t interval = f.size({"no_rope_layer_interval"}, 4);
  const auto rotary = [&](std::uint32_t i) {
    return i < listed.size() ? listed[i] != 0 : (i + 1) % interval != 0;
  };
  const std::uint32_t window = f.flag({"use_sliding_window"}, false) ? read_window(f, 0) : 0;
  f.mark_as_read("sliding_window");
  const std::vector<std::uint32_t> windows =
      read_windows(f, read_layer_count(f), window, [&](std::uint32_t i) { return !rotary(i); });
  for (std::uint32_t i = 0; i < windows.size(); ++i) {
    l.attention.rotary = rotary(i), l.attention.window = windows[i];
    append(a, l);
  }
  return a;
}

Architecture read_seed_oss(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 524288);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8, .head_dim = 128}), .mlp = read_gated_mlp(f)};
  set_qkv_bias(l.attention, f.flag({"attention_bias"}, true));
  l.attention.o_bias = f.flag({"attention_out_bias"}, false);
  l.mlp.up_bias = l.mlp.down_bias = f.flag({"mlp_bias"}, false);
  append_equal(a, l, read_layer_count(f));
  return a;
}

Architecture read_glm(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  append_equal(a, glm_layer(f, a.hidden), read_layer_count(f));
  return a;
}

/// GLM with norms after attention and MLP too.
Architecture read_glm4(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  Layer l = glm_layer(f, a.hidden);
  l.norms = 4;
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// Command R. The norms of q and k have one vector per head (Command R+).
Architecture read_cohere(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 8192);
  a.final_norm = NormKind::kScaleOnly;
  Layer l = cohere_layer(f, a.hidden);
  if (f.flag({"use_qk_norm"}, false)) l.attention.qk_norm = NormKind::kScaleOnly;
  l.attention.qk_norm_per_head = false;
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// Command R7B: windows, except in every fourth layer.
Architecture read_cohere2(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 8192);
  a.final_norm = NormKind::kScaleOnly;
  const Layer l = cohere_layer(f, a.hidden);
  const std::uint32_t window = read_window(f, 4096);
  const std::uint32_t pattern =
      f.size({"sliding_window_pattern", "_sliding_window_pattern", "layer_switch"}, 4);
  append_windowed(a, l, read_windows(f, read_layer_count(f), window, [&](std::uint32_t i) {
                    return (i + 1) % pattern != 0;
                  }));
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
