// Readers of Gemma 4: windowed layers with full attention in every sixth, whose heads are wider and may have
// no matrix of v; the last layers of E2B and E4B reuse k and v of earlier ones; E2B and E4B have embeddings
// per layer; 26B-A4B has experts beside the MLP.
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

/// Attention of windowed layers and of layers with full attention.
struct Kinds {
  Attention windowed, full;
};

Kinds read_attention(ConfigFields& f, std::uint32_t hidden) {
  Kinds k;
  k.windowed = read_heads(f, hidden, {.kv_heads = 4, .head_dim = 256});
  set_all_biases(k.windowed, f.flag({"attention_bias"}, false));
  k.windowed.qk_norm = NormKind::kRms, k.windowed.v_norm = true;
  k.full = k.windowed;
  k.windowed.window = f.size({"sliding_window"}, 512);
  k.full.head_dim = f.size({"global_head_dim"}, 512);
  k.full.v_is_k = f.flag({"attention_k_eq_v"}, false);
  const std::uint32_t kv_heads = f.size({"num_global_key_value_heads"}, k.full.kv_heads);
  if (k.full.v_is_k) k.full.kv_heads = kv_heads;
  if (k.full.heads % k.full.kv_heads)
    f.fail("num_global_key_value_heads",
           "= " + std::to_string(kv_heads) +
               " does not divide num_attention_heads = " + std::to_string(k.full.heads));
  return k;
}

/// Files that transformers saved have the heads of each layer with full attention in per_layer_config, under
/// the number of the layer with leading zeros ("05" of a model with 12 layers).
void read_own_heads(ConfigFields& f, std::uint32_t layer, const Attention& others, Attention& at) {
  ConfigFields& layers = f.object("per_layer_config");
  std::string name = std::to_string(layer);
  while (!layers.given(name) && name.size() < 4) name.insert(0, 1, '0');
  if (!layers.given(name)) name = std::to_string(layer);
  ConfigFields& own = layers.object(name);
  at.head_dim = own.size({"head_dim"}, others.head_dim);
  at.kv_heads = own.size({"num_key_value_heads"}, others.kv_heads);
  if (at.heads % at.kv_heads)
    own.fail("num_key_value_heads", "= " + std::to_string(at.kv_heads) +
                                        " does not divide num_attention_heads = " + std::to_string(at.heads));
}

}  // namespace

Architecture read_gemma4_text(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 131072);
  const std::uint32_t layers = read_layer_count(f);
  const Kinds kinds = read_attention(f, a.hidden);
  Layer l{.mlp = read_gated_mlp(f), .norms = 4};
  a.per_layer_width = l.per_layer_width = f.number({"hidden_size_per_layer_input"}, 256);
  const std::uint32_t rows = f.size({"vocab_size_per_layer_input"}, 262144);
  if (a.per_layer_width) a.per_layer_vocab = rows, ++l.norms;
  if (f.flag({"enable_moe_block"}, false)) {
    l.experts = read_routed_experts(f, {"num_experts"}, {"top_k_experts"}, f.size({"moe_intermediate_size"}));
    l.experts.router_scale = l.experts.router_bias = true;  // router_bias: per_expert_scale
    l.norms += 3;
  }
  for (const char* unused : {"num_experts", "top_k_experts", "moe_intermediate_size"}) f.mark_as_read(unused);
  const std::uint32_t shared = f.number({"num_kv_shared_layers"}, 0);
  if (shared >= layers)
    f.fail("num_kv_shared_layers", "= " + std::to_string(shared) +
                                       ": expected less than num_hidden_layers = " + std::to_string(layers));
  const std::uint32_t wide = f.flag({"use_double_wide_mlp"}, false) ? 2 : 1;
  std::vector<std::string> types =
      read_layer_types(f, "layer_types", layers, {"sliding_attention", "full_attention"},
                       [](std::uint32_t i) { return (i + 1) % 6 ? "sliding_attention" : "full_attention"; });
  types.back() = "full_attention";  // as transformers does, whatever the file says
  for (std::uint32_t i = 0; i < layers; ++i) {
    Layer one = l;
    one.attention = types[i] == "full_attention" ? kinds.full : kinds.windowed;
    if (f.given("per_layer_config")) read_own_heads(f, i, kinds.windowed, one.attention);
    if (i >= layers - shared) {
      one.attention.reuses_kv = true;
      one.mlp.width *= wide;
    }
    append(a, one);
  }
  return a;
}

Architecture read_gemma4(ConfigFields& f) { return read_text_config(f, read_gemma4_text); }

}  // namespace trainhost::model
