// Readers of Qwen3-Next and Qwen3.5: gated DeltaNet in three of four layers, gated attention in the fourth; a
// dense MLP or experts with a shared expert. Qwen3.5 is multimodal; its decoder is in text_config.
#include <algorithm>

#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

LinearAttention read_delta_net(ConfigFields& f) {
  LinearAttention d;
  d.key_heads = f.size({"linear_num_key_heads"}, 16);
  d.value_heads = f.size({"linear_num_value_heads"}, 32);
  d.key_dim = f.size({"linear_key_head_dim"}, 128);
  d.value_dim = f.size({"linear_value_head_dim"}, 128);
  d.kernel = f.size({"linear_conv_kernel_dim"}, 4);
  d.chunk = 64;  // of the kernels and of transformers' own sequence
  d.gates = d.head_weights = 2;
  d.norm_per_head = d.delta = true;
  if (d.value_heads % d.key_heads)
    f.fail("linear_num_key_heads",
           "= " + std::to_string(d.key_heads) +
               " does not divide linear_num_value_heads = " + std::to_string(d.value_heads));
  return d;
}

/// Appends the layers: `dense` without experts, else experts in those that has_experts(layer) selects.
Architecture append_layers(ConfigFields& f, Architecture a, std::uint32_t kv_heads, const Mlp& dense,
                           const Experts& experts, const std::function<bool(std::uint32_t)>& has_experts) {
  Layer attention{.attention = read_heads(f, a.hidden, {.kv_heads = kv_heads, .head_dim = 256})};
  attention.attention.qk_norm = NormKind::kRms;
  attention.attention.gated = true;
  f.mark_as_read("attn_output_gate");
  set_all_biases(attention.attention, f.flag({"attention_bias"}, false));
  const Layer linear{.linear = read_delta_net(f)};
  const std::uint32_t interval = f.size({"full_attention_interval"}, 4);
  const std::vector<std::string> types = read_layer_types(
      f, "layer_types", read_layer_count(f), {"linear_attention", "full_attention"},
      [&](std::uint32_t i) { return (i + 1) % interval ? "linear_attention" : "full_attention"; });
  for (std::uint32_t i = 0; i < types.size(); ++i) {
    Layer l = types[i] == "linear_attention" ? linear : attention;
    if (has_experts(i))
      l.experts = experts;
    else
      l.mlp = dense;
    append(a, l);
  }
  f.mark_as_read("mtp_use_dedicated_embeddings");
  if (const std::uint32_t modules = f.number({"mtp_num_hidden_layers"}, 0))
    a.notes.push_back("mtp_num_hidden_layers = " + std::to_string(modules) +
                      ": the multi-token prediction module is not counted");
  return a;
}

Experts read_shared_experts(ConfigFields& f) {
  Experts e = read_routed_experts(f, {"num_experts"}, {"num_experts_per_tok"},
                                  f.size({"moe_intermediate_size"}, 512));
  e.shared.width = f.size({"shared_expert_intermediate_size"}, 512);
  e.shared_gate = true;
  return e;
}

}  // namespace

Architecture read_qwen3_next(ConfigFields& f) {
  const std::uint32_t step = f.size({"decoder_sparse_step"}, 1);
  const std::vector<std::uint32_t> only = f.numbers("mlp_only_layers");
  const Mlp dense{.width = f.size({"intermediate_size"}, 5632)};
  return append_layers(
      f, read_dimensions(f, false, 32768), 2, dense, read_shared_experts(f),
      [&](std::uint32_t i) { return (i + 1) % step == 0 && std::ranges::find(only, i) == only.end(); });
}

Architecture read_qwen3_5_text(ConfigFields& f) {
  f.mark_as_read("mlp_only_layers");
  return append_layers(f, read_dimensions(f, false, 32768), 4, read_gated_mlp(f), {},
                       [](std::uint32_t) { return false; });
}

Architecture read_qwen3_5_moe_text(ConfigFields& f) {
  for (const char* unused : {"mlp_only_layers", "intermediate_size", "decoder_sparse_step"})
    f.mark_as_read(unused);
  return append_layers(f, read_dimensions(f, false, 32768), 2, {}, read_shared_experts(f),
                       [](std::uint32_t) { return true; });
}

Architecture read_qwen3_5(ConfigFields& f) { return read_text_config(f, read_qwen3_5_text); }
Architecture read_qwen3_5_moe(ConfigFields& f) { return read_text_config(f, read_qwen3_5_moe_text); }

}  // namespace trainhost::model
