// The kin of GPT: a plain MLP (up and down), LayerNorms with a shift, mostly biases everywhere; positions
// learned, rotary or ALiBi. What an absent field means is what transformers' class of that family takes.
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

std::uint32_t times(Fields& f, const char* name, std::uint32_t factor, std::uint32_t n) {
  const std::uint64_t product = std::uint64_t{factor} * n;
  if (product > INT32_MAX) f.fail(name, "makes an MLP that is too large");
  return static_cast<std::uint32_t>(product);
}

Mlp plain_mlp(std::uint32_t width, bool bias) {
  return {.gated = false, .up_bias = bias, .down_bias = bias, .width = width};
}

}  // namespace

Architecture read_gpt2(Fields& f) {
  Architecture a = base(f, true, 1024);
  a.final_norm = NormKind::kLayer;
  a.learned_positions = a.max_positions;
  Layer l{.attention = heads_of(f, a.hidden), .norm = NormKind::kLayer};
  bias_all(l.attention, true);
  l.mlp = plain_mlp(f.size({"n_inner", "intermediate_size"}, times(f, "n_embd", 4, a.hidden)), true);
  append_equal(a, l, layers_of(f));
  return a;
}

/// Two norms a layer, whether attention and MLP run side by side or not. Pythia is of this family.
Architecture read_gpt_neox(Fields& f) {
  Architecture a = base(f, false);
  a.final_norm = NormKind::kLayer;
  Layer l{.attention = heads_of(f, a.hidden),
          .mlp = plain_mlp(f.size({"intermediate_size"}), true),
          .norm = NormKind::kLayer};
  bias_all(l.attention, f.flag({"attention_bias"}, true));
  f.understood("use_parallel_residual");
  append_equal(a, l, layers_of(f));
  return a;
}

/// The position table has two rows more than positions. A word embedding narrower than H is projected up, and
/// down again before the head; with norms behind attention and MLP there is none at the end.
Architecture read_opt(Fields& f) {
  Architecture a = base(f, true);
  a.learned_positions = a.max_positions + 2;
  a.embedding_width = f.size({"word_embed_proj_dim"}, a.hidden);
  const bool bias = f.flag({"enable_bias"}, true);
  const NormKind norm = f.flag({"layer_norm_elementwise_affine"}, true) ? NormKind::kLayer : NormKind::kNone;
  const bool before = f.flag({"do_layer_norm_before"}, true),
             removed = f.flag({"_remove_final_layer_norm"}, false);
  a.final_norm = before && !removed ? norm : NormKind::kNone;
  Layer l{.attention = heads_of(f, a.hidden), .mlp = plain_mlp(f.size({"ffn_dim"}), bias), .norm = norm};
  bias_all(l.attention, bias);
  append_equal(a, l, layers_of(f));
  return a;
}

/// The older layer has one norm where attention and MLP run side by side (7B), the newer one (40B, 180B) one
/// for each. One head of k and v (7B), num_kv_heads (newer), or as many as of q.
Architecture read_falcon(Fields& f) {
  Architecture a = base(f, true);
  a.final_norm = NormKind::kLayer;
  Layer l{.attention = heads_of(f, a.hidden), .norm = NormKind::kLayer};
  Attention& at = l.attention;
  const bool newer = f.flag({"new_decoder_architecture"}, false), beside = f.flag({"parallel_attn"}, true);
  const bool one = f.flag({"multi_query"}, true);
  const std::uint32_t stated = f.size({"num_kv_heads", "n_head_kv"}, at.heads);
  at.kv_heads = newer ? stated : one ? 1 : at.heads;
  if (at.heads % at.kv_heads)
    f.fail("num_kv_heads", "= " + std::to_string(at.kv_heads) +
                               " does not divide num_attention_heads = " + std::to_string(at.heads));
  const bool bias = f.flag({"bias"}, false);
  bias_all(at, bias);
  l.mlp = plain_mlp(f.size({"ffn_hidden_size"}, times(f, "hidden_size", 4, a.hidden)), bias);
  const std::uint32_t norms = f.size({"num_ln_in_parallel_attn"}, newer ? 2 : 1);
  l.norms = beside ? (newer ? norms : 1) : 2;
  append_equal(a, l, layers_of(f));
  return a;
}

/// Positions by ALiBi make the learned table vanish, whatever learned_pos_emb says. Its norms have no shift
/// without biases.
Architecture read_mpt(Fields& f) {
  Architecture a = base(f, true);
  Fields& at = f.object("attn_config");
  const bool alibi = at.flag({"alibi"}, false), rotary = at.flag({"rope"}, false);
  if (f.flag({"learned_pos_emb"}, true) && !alibi && !rotary) a.learned_positions = a.max_positions;
  const bool bias = !f.flag({"no_bias"}, true);
  const std::string kind = f.text({"norm_type"}, "low_precision_layernorm");
  const NormKind norm = kind.find("rms") != kind.npos ? NormKind::kRms
                        : bias                        ? NormKind::kLayer
                                                      : NormKind::kScaleOnly;
  a.final_norm = norm;
  Layer l{.attention = heads_of(f, a.hidden), .norm = norm};
  const std::string type = at.text({"attn_type"}, "multihead_attention");
  if (type == "multiquery_attention") l.attention.kv_heads = 1;
  if (type == "grouped_query_attention")
    l.attention.kv_heads = at.size({"kv_n_heads"});
  else
    at.understood("kv_n_heads");
  if (l.attention.heads % l.attention.kv_heads)
    at.fail("kv_n_heads", "= " + std::to_string(l.attention.kv_heads) +
                              " does not divide n_heads = " + std::to_string(l.attention.heads));
  bias_all(l.attention, bias);
  if (at.flag({"qk_ln"}, false)) l.attention.qk_norm = norm;
  l.attention.qk_norm_per_head = false;
  l.mlp = plain_mlp(times(f, "expansion_ratio", f.size({"expansion_ratio"}, 4), a.hidden), bias);
  f.understood("embedding_fraction");  // of gradients
  append_equal(a, l, layers_of(f));
  return a;
}

/// Attention and MLP share one norm; even the head has a bias.
Architecture read_phi(Fields& f) {
  Architecture a = base(f, false);
  a.final_norm = NormKind::kLayer;
  a.head_bias = true;
  Layer l{.attention = heads_of(f, a.hidden),
          .mlp = plain_mlp(f.size({"intermediate_size"}), true),
          .norm = NormKind::kLayer,
          .norms = 1};
  bias_all(l.attention, true);
  if (f.flag({"qk_layernorm"}, false)) l.attention.qk_norm = NormKind::kLayer;
  append_equal(a, l, layers_of(f));
  return a;
}

Architecture read_starcoder2(Fields& f) {
  Architecture a = base(f, true, 4096);
  a.final_norm = NormKind::kLayer;
  const bool bias = f.flag({"use_bias"}, true);
  Layer l{.attention = heads_of(f, a.hidden, {.kv_heads = 2}),
          .mlp = plain_mlp(f.size({"intermediate_size"}), bias),
          .norm = NormKind::kLayer};
  bias_all(l.attention, bias);
  if (f.text({"norm_type"}, "layer_norm") != "layer_norm")
    f.fail("norm_type", "= \"" + f.text({"norm_type"}, "") + "\": expected layer_norm");
  const std::uint32_t window = window_of(f, 0);
  append_windowed(a, l, windows_of(f, layers_of(f), window, [](std::uint32_t) { return true; }));
  return a;
}

}  // namespace trainhost::model
