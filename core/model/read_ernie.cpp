// Readers of ERNIE 4.5, Hunyuan and MiniMax-M2: LLaMA-like decoders, dense or with experts.
#include <algorithm>

#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

void set_biases(Layer& l, bool on) {
  set_all_biases(l.attention, on);
  l.mlp.up_bias = l.mlp.down_bias = on;
}

/// q and k have a norm of one vector of D each.
Attention read_hunyuan_attention(ConfigFields& f, std::uint32_t hidden) {
  Attention at = read_heads(f, hidden);
  at.qk_norm = NormKind::kRms;
  set_all_biases(at, f.flag({"attention_bias"}, false));
  for (const char* unused : {"attention_head_dim", "use_qk_norm", "use_cla", "cla_share_factor"})
    f.mark_as_read(unused);
  return at;
}

}  // namespace

Architecture read_ernie4_5(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 131072);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 2, .head_dim = 128}), .mlp = read_gated_mlp(f)};
  set_biases(l, f.flag({"use_bias"}, false));
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// The correction biases of the routers are not counted: they are not trained by the optimizer.
Architecture read_ernie4_5_moe(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 131072);
  const std::uint32_t layers = read_layer_count(f), width = f.size({"moe_intermediate_size"}, 1536);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 4})};
  const bool bias = f.flag({"use_bias"}, false);
  set_all_biases(l.attention, bias);
  a.head_bias = bias;
  Experts experts =
      read_routed_experts(f, {"moe_num_experts", "num_experts"}, {"moe_k", "num_experts_per_tok"}, width);
  const std::uint64_t shared = std::uint64_t{f.number({"moe_num_shared_experts"}, 2)} * width;
  if (shared > INT32_MAX) f.fail("moe_num_shared_experts", "* moe_intermediate_size is too large");
  experts.shared = {.up_bias = bias, .down_bias = bias, .width = static_cast<std::uint32_t>(shared)};
  const std::uint32_t first = f.number({"moe_layer_start_index"}, 1),
                      step = f.size({"moe_layer_interval"}, 1);
  // -1, which is no count: up to the last layer.
  const std::uint32_t last = f.count_or_minus_one("moe_layer_end_index").value_or(layers - 1);
  append_mixed(a, l, {.up_bias = bias, .down_bias = bias, .width = f.size({"intermediate_size"})}, experts,
               std::vector<std::uint32_t>(layers, 0),
               [&](std::uint32_t i) { return (i + 1) % step == 0 && i >= first && i <= last; });
  note_prediction_modules(f, a);
  return a;
}

Architecture read_hunyuan_v1_dense(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  append_equal(a, Layer{.attention = read_hunyuan_attention(f, a.hidden), .mlp = read_gated_mlp(f)},
               read_layer_count(f));
  return a;
}

/// All experts, the shared one too, have the width intermediate_size. moe_topk may be a list with the number
/// of active experts of each layer.
Architecture read_hunyuan_v1_moe(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  const std::uint32_t layers = read_layer_count(f);
  Layer l{.attention = read_hunyuan_attention(f, a.hidden)};
  l.experts.count = f.size({"num_experts"});
  l.experts.each = l.experts.shared = read_gated_mlp(f);
  const std::vector<std::uint32_t> active = f.is_list("moe_topk")
                                                ? f.numbers("moe_topk")
                                                : std::vector<std::uint32_t>(layers, f.size({"moe_topk"}, 1));
  if (active.size() < layers)
    f.fail("moe_topk", "has " + std::to_string(active.size()) +
                           " entries: expected num_hidden_layers = " + std::to_string(layers));
  for (std::uint32_t i = 0; i < layers; ++i) {
    l.experts.active = active[i];
    if (active[i] > l.experts.count)
      f.fail("moe_topk", "= " + std::to_string(active[i]) +
                             " is more than num_experts = " + std::to_string(l.experts.count));
    append(a, l);
  }
  for (const char* unused :
       {"moe_intermediate_size", "num_shared_expert", "moe_layer_num_skipped", "use_mixed_mlp_moe"})
    f.mark_as_read(unused);
  return a;
}

/// q and k have norms of the width of all heads. The correction biases of the routers are buffers.
Architecture read_minimax_m2(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 196608);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8, .head_dim = 128})};
  l.attention.qk_norm = NormKind::kRms, l.attention.qk_norm_per_head = false;
  l.experts = read_routed_experts(f, {"num_local_experts", "num_experts"}, {"num_experts_per_tok"},
                                  f.size({"intermediate_size"}));
  append_equal(a, l, read_layer_count(f));
  for (const char* unused : {"use_qk_norm", "qk_norm_type", "use_routing_bias", "attn_type_list",
                             "rotary_dim", "mlp_intermediate_size", "shared_intermediate_size",
                             "shared_moe_mode", "use_mtp", "num_mtp_modules", "mtp_transformer_layers"})
    f.mark_as_read(unused);
  if (f.flag({"use_mtp"}, false))
    a.notes.emplace_back("use_mtp: the multi-token prediction modules are not counted");
  return a;
}

}  // namespace trainhost::model
