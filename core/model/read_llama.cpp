// Families that are a LLaMA with a few fields of their own: RMSNorm, rotary, a gated MLP. What an absent
// field means is what transformers' class of that family takes. Fused weights (Phi-3's qkv, Baichuan's
// W_pack) have the shapes of their parts.
#include "core/model/family_readers.hpp"

namespace trainhost::model {

Architecture read_llama(Fields& f) {
  Architecture a = base(f, false);
  Layer l{.attention = heads_of(f, a.hidden), .mlp = gated_mlp(f)};
  bias_all(l.attention, f.flag({"attention_bias"}, false));
  l.mlp.up_bias = l.mlp.down_bias = f.flag({"mlp_bias"}, false);
  append_equal(a, l, layers_of(f));
  return a;
}

Architecture read_granite(Fields& f) { return read_llama(f); }

Architecture read_mistral(Fields& f) {
  Architecture a = base(f, false, 131072);
  const Layer l{.attention = heads_of(f, a.hidden, {.kv_heads = 8}), .mlp = gated_mlp(f)};
  const std::uint32_t window = window_of(f, 4096);
  append_windowed(a, l, windows_of(f, layers_of(f), window, [](std::uint32_t) { return true; }));
  return a;
}

Architecture read_qwen2(Fields& f) {
  Architecture a = base(f, false, 32768);
  Layer l{.attention = heads_of(f, a.hidden, {.kv_heads = 32}), .mlp = gated_mlp(f)};
  bias_qkv(l.attention, true);
  append_windowed(a, l, qwen_windows(f, layers_of(f)));
  return a;
}

Architecture read_qwen3(Fields& f) {
  Architecture a = base(f, false, 32768);
  Layer l{.attention = heads_of(f, a.hidden, {.kv_heads = 32, .head_dim = 128}), .mlp = gated_mlp(f)};
  l.attention.qk_norm = NormKind::kRms;
  bias_all(l.attention, f.flag({"attention_bias"}, false));
  append_windowed(a, l, qwen_windows(f, layers_of(f)));
  return a;
}

Architecture read_phi3(Fields& f) {
  Architecture a = base(f, false, 4096);
  const Layer l{.attention = heads_of(f, a.hidden), .mlp = gated_mlp(f)};
  const std::uint32_t window = window_of(f, 0);
  append_windowed(a, l, windows_of(f, layers_of(f), window, [](std::uint32_t) { return true; }));
  return a;
}

/// Its norms learn nothing.
Architecture read_olmo(Fields& f) {
  Architecture a = base(f, false);
  a.final_norm = NormKind::kNone;
  Layer l{.attention = heads_of(f, a.hidden), .mlp = gated_mlp(f), .norm = NormKind::kNone};
  bias_all(l.attention, f.flag({"attention_bias"}, false));
  append_equal(a, l, layers_of(f));
  return a;
}

/// Norms stand behind attention and MLP, two a layer; those of q and k run over all heads at once.
Architecture read_olmo2(Fields& f) {
  Architecture a = base(f, false);
  Layer l{.attention = heads_of(f, a.hidden), .mlp = gated_mlp(f)};
  l.attention.qk_norm = NormKind::kRms;
  l.attention.qk_norm_per_head = false;
  bias_all(l.attention, f.flag({"attention_bias"}, false));
  append_equal(a, l, layers_of(f));
  return a;
}

Architecture read_internlm2(Fields& f) {
  Architecture a = base(f, false);
  Layer l{.attention = heads_of(f, a.hidden), .mlp = gated_mlp(f)};
  bias_all(l.attention, f.flag({"bias"}, true));
  append_equal(a, l, layers_of(f));
  return a;
}

Architecture read_baichuan(Fields& f) {
  Architecture a = base(f, false, 4096);
  append_equal(a, Layer{.attention = heads_of(f, a.hidden), .mlp = gated_mlp(f)}, layers_of(f));
  return a;
}

/// LayerNorms; one a layer where attention and MLP run side by side. Norms of q and k are one vector a head,
/// without shift.
Architecture read_stablelm(Fields& f) {
  Architecture a = base(f, false, 4096);
  a.final_norm = NormKind::kLayer;
  Layer l{
      .attention = heads_of(f, a.hidden, {.kv_heads = 32}), .mlp = gated_mlp(f), .norm = NormKind::kLayer};
  l.norms = f.flag({"use_parallel_residual"}, false) ? 1 : 2;
  bias_qkv(l.attention, f.flag({"use_qkv_bias"}, false));
  if (f.flag({"qk_layernorm"}, false)) l.attention.qk_norm = NormKind::kScaleOnly;
  l.attention.qk_norm_per_head = false;
  append_equal(a, l, layers_of(f));
  return a;
}

}  // namespace trainhost::model
