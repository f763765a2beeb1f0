// Readers of GPT-like families: MLP of two matrices, LayerNorms with shift, usually biases; learned, rotary
// or ALiBi positions. Defaults of absent fields are those of the family's transformers class.
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

std::uint32_t mlp_width(ConfigFields& f, const char* name, std::uint32_t factor, std::uint32_t n) {
  const std::uint64_t product = std::uint64_t{factor} * n;
  if (product > INT32_MAX) f.fail(name, "makes the MLP too large");
  return static_cast<std::uint32_t>(product);
}

Mlp plain_mlp(std::uint32_t width, bool bias) {
  return {.gated = false, .up_bias = bias, .down_bias = bias, .width = width};
}

}  // namespace

// All linear layers have biases; there is no field for them.
Architecture read_gpt2(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 1024);
  a.final_norm = NormKind::kLayer;
  a.learned_positions = a.max_positions;
  Layer l{.attention = read_heads(f, a.hidden), .norm = NormKind::kLayer};
  set_all_biases(l.attention, true);
  l.mlp = plain_mlp(f.size({"n_inner", "intermediate_size"}, mlp_width(f, "n_embd", 4, a.hidden)), true);
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// Two norms per layer, also with parallel attention and MLP. Pythia is of this family.
Architecture read_gpt_neox(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  a.final_norm = NormKind::kLayer;
  Layer l{.attention = read_heads(f, a.hidden),
          .mlp = plain_mlp(f.size({"intermediate_size"}), true),
          .norm = NormKind::kLayer};
  set_all_biases(l.attention, f.flag({"attention_bias"}, true));
  // Parallel or sequential attention and MLP: the same tensors.
  f.mark_as_read("use_parallel_residual");
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// The position table has two more rows than positions. A word embedding narrower than H is projected up, and
/// down before the head. Post-norm models have no final norm.
Architecture read_opt(ConfigFields& f) {
  Architecture a = read_dimensions(f, true);
  a.learned_positions = a.max_positions + 2;
  a.embedding_width = f.size({"word_embed_proj_dim"}, a.hidden);
  const bool bias = f.flag({"enable_bias"}, true);
  const NormKind norm = f.flag({"layer_norm_elementwise_affine"}, true) ? NormKind::kLayer : NormKind::kNone;
  const bool before = f.flag({"do_layer_norm_before"}, true),
             removed = f.flag({"_remove_final_layer_norm"}, false);
  a.final_norm = before && !removed ? norm : NormKind::kNone;
  Layer l{.attention = read_heads(f, a.hidden), .mlp = plain_mlp(f.size({"ffn_dim"}), bias), .norm = norm};
  set_all_biases(l.attention, bias);
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// With parallel attention and MLP the old architecture (7B) has one norm per layer, the new one (40B, 180B)
/// two. KV heads: one (7B), num_kv_heads (new), or as many as query heads.
Architecture read_falcon(ConfigFields& f) {
  Architecture a = read_dimensions(f, true);
  a.final_norm = NormKind::kLayer;
  Layer l{.attention = read_heads(f, a.hidden), .norm = NormKind::kLayer};
  Attention& at = l.attention;
  const bool newer = f.flag({"new_decoder_architecture"}, false), parallel = f.flag({"parallel_attn"}, true);
  const bool one = f.flag({"multi_query"}, true);
  const std::uint32_t stated = f.size({"num_kv_heads", "n_head_kv"}, at.heads);
  at.kv_heads = newer ? stated : one ? 1 : at.heads;
  if (at.heads % at.kv_heads)
    f.fail("num_kv_heads", "= " + std::to_string(at.kv_heads) +
                               " does not divide num_attention_heads = " + std::to_string(at.heads));
  const bool bias = f.flag({"bias"}, false);
  set_all_biases(at, bias);
  l.mlp = plain_mlp(f.size({"ffn_hidden_size"}, mlp_width(f, "hidden_size", 4, a.hidden)), bias);
  const std::uint32_t norms = f.size({"num_ln_in_parallel_attn"}, newer ? 2 : 1);
  l.norms = parallel ? (newer ? norms : 1) : 2;
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// With ALiBi there is no position table, whatever learned_pos_emb is. With no_bias the norms have no shift.
Architecture read_mpt(ConfigFields& f) {
  Architecture a = read_dimensions(f, true);
  ConfigFields& at = f.object("attn_config");
  const bool alibi = at.flag({"alibi"}, false), rotary = at.flag({"rope"}, false);
  if (f.flag({"learned_pos_emb"}, true) && !alibi && !rotary) a.learned_positions = a.max_positions;
  const bool bias = !f.flag({"no_bias"}, true);
  const std::string kind = f.text({"norm_type"}, "low_precision_layernorm");
  const NormKind norm = kind.find("rms") != kind.npos ? NormKind::kRms
                        : bias                        ? NormKind::kLayer
                                                      : NormKind::kScaleOnly;
  a.final_norm = norm;
  Layer l{.attention = read_heads(f, a.hidden), .norm = norm};
  const std::string type = at.text({"attn_type"}, "multihead_attention");
  if (type == "multiquery_attention") l.attention.kv_heads = 1;
  // A published config may state kv_n_heads for other types of attention too, where it has no effect.
  if (type == "grouped_query_attention")
    l.attention.kv_heads = at.size({"kv_n_heads"});
  else
    at.mark_as_read("kv_n_heads");
  if (l.attention.heads % l.attention.kv_heads)
    at.fail("kv_n_heads", "= " + std::to_string(l.attention.kv_heads) +
                              " does not divide n_heads = " + std::to_string(l.attention.heads));
  set_all_biases(l.attention, bias);
  if (at.flag({"qk_ln"}, false)) l.attention.qk_norm = norm;
  // The norms of q and k have the width of all heads.
  l.attention.qk_norm_per_head = false;
  l.mlp = plain_mlp(mlp_width(f, "expansion_ratio", f.size({"expansion_ratio"}, 4), a.hidden), bias);
  f.mark_as_read("embedding_fraction");  // affects only gradients
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// Attention and MLP share one norm; the head has a bias.
Architecture read_phi(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  a.final_norm = NormKind::kLayer;
  a.head_bias = true;
  Layer l{.attention = read_heads(f, a.hidden),
          .mlp = plain_mlp(f.size({"intermediate_size"}), true),
          .norm = NormKind::kLayer,
          .norms = 1};
  set_all_biases(l.attention, true);
  if (f.flag({"qk_layernorm"}, false)) l.attention.qk_norm = NormKind::kLayer;
  append_equal(a, l, read_layer_count(f));
  return a;
}

// Sliding window in all layers; two KV heads when the field is absent (the 3B model).
Architecture read_starcoder2(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 4096);
  a.final_norm = NormKind::kLayer;
  const bool bias = f.flag({"use_bias"}, true);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 2}),
          .mlp = plain_mlp(f.size({"intermediate_size"}), bias),
          .norm = NormKind::kLayer};
  set_all_biases(l.attention, bias);
  // The transformers class implements LayerNorm only.
  if (f.text({"norm_type"}, "layer_norm") != "layer_norm")
    f.fail("norm_type", "= \"" + f.text({"norm_type"}, "") + "\": expected layer_norm");
  const std::uint32_t window = read_window(f, 0);
  append_windowed(a, l, read_windows(f, read_layer_count(f), window, [](std::uint32_t) { return true; }));
  return a;
}

}  // namespace trainhost::model
