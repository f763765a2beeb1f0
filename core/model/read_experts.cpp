// Mixtures of experts: a router of E x H, E gated MLPs of which a token uses a few, beside them what every
// token uses. Which layers have them is a rule of each family; the rest are dense.
#include <algorithm>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

/// Throws where a token is to use more experts than there are.
Experts routed(Fields& f, Names count, Names active, std::uint32_t width) {
  Experts e;
  e.count = f.size(count);
  e.active = f.size(active);
  e.each = {.width = width};
  if (e.active > e.count)
    f.fail(*active.begin(), "= " + std::to_string(e.active) + " is more than " + std::string(*count.begin()) +
                                " = " + std::to_string(e.count));
  return e;
}

/// `l` with a dense MLP where `sparse` says no, with experts where it says yes.
void append_mixed(Architecture& a, const Layer& l, const Mlp& dense, const Experts& experts,
                  const std::vector<std::uint32_t>& windows,
                  const std::function<bool(std::uint32_t)>& sparse) {
  for (std::uint32_t i = 0; i < windows.size(); ++i) {
    Layer one = l;
    one.attention.window = windows[i];
    if (sparse(i))
      one.experts = experts;
    else
      one.mlp = dense;
    append(a, one);
  }
}

/// Every decoder_sparse_step-th layer, but for those of mlp_only_layers.
Architecture qwen_moe(Fields& f, Architecture a, const Layer& l, Experts experts) {
  const Mlp dense{.width = f.size({"intermediate_size"})};
  const std::uint32_t step = f.size({"decoder_sparse_step"}, 1);
  const std::vector<std::uint32_t> only = f.numbers("mlp_only_layers");
  append_mixed(a, l, dense, experts, qwen_windows(f, layers_of(f)), [&](std::uint32_t i) {
    return (i + 1) % step == 0 && std::find(only.begin(), only.end(), i) == only.end();
  });
  return a;
}

/// The first layers are dense, then every moe_layer_freq-th has experts; the shared ones are one MLP as wide
/// as all of them.
Architecture deepseek(Fields& f, Architecture a, const Layer& l, bool router_bias) {
  const std::uint32_t width = f.size({"moe_intermediate_size"}), layers = layers_of(f);
  Experts experts = routed(f, {"n_routed_experts"}, {"num_experts_per_tok"}, width);
  const std::uint64_t shared = std::uint64_t{f.number({"n_shared_experts"}, 0)} * width;
  if (shared > INT32_MAX) f.fail("n_shared_experts", "times moe_intermediate_size is too large");
  experts.shared.width = static_cast<std::uint32_t>(shared);
  experts.router_bias = router_bias;
  const std::uint32_t first = f.number({"first_k_dense_replace"}, 0), step = f.size({"moe_layer_freq"}, 1);
  append_mixed(a, l, {.width = f.size({"intermediate_size"})}, experts, std::vector<std::uint32_t>(layers, 0),
               [&](std::uint32_t i) { return i >= first && i % step == 0; });
  return a;
}

/// Multi-head latent attention: what a token leaves in the cache is kv_lora_rank + qk_rope_head_dim wide.
Attention latent(Fields& f) {
  Attention at;
  at.latent = true;
  at.heads = at.kv_heads = f.size({"num_attention_heads"});
  f.understood("num_key_value_heads");
  at.q_lora_rank = f.size({"q_lora_rank"}, f.present("q_lora_rank") ? 0 : 1536);
  at.kv_lora_rank = f.size({"kv_lora_rank"});
  at.rope_head_dim = f.size({"qk_rope_head_dim"});
  at.nope_head_dim = f.size({"qk_nope_head_dim"});
  at.v_head_dim = f.size({"v_head_dim"});
  at.head_dim = at.nope_head_dim + at.rope_head_dim;
  for (const char* said_again : {"qk_head_dim", "head_dim"}) f.understood(said_again);
  at.q_bias = at.k_bias = at.o_bias = f.flag({"attention_bias"}, false);
  return at;
}

/// A module that predicts one token more: a layer like the last, 2H -> H before it and three norms; embedding
/// and head are the model's own.
void name_prediction_layers(Fields& f, Architecture& a) {
  const std::uint32_t modules = f.number({"num_nextn_predict_layers"}, 0);
  if (!modules) return;
  const std::uint64_t h = a.hidden, each = checked_add(layer_elements(a.layers.back().layer, h),
                                                       checked_add(checked_mul(2, h, h), 3 * h));
  a.notes.push_back("num_nextn_predict_layers = " + std::to_string(modules) +
                    ": the module that predicts further tokens, " + format_count(checked_mul(each, modules)) +
                    " parameters beside the embedding and head it shares, is left out");
}

}  // namespace

Architecture read_mixtral(Fields& f) {
  Architecture a = base(f, false, 131072);
  const Layer l{.attention = heads_of(f, a.hidden, {.kv_heads = 8})};
  const Experts experts =
      routed(f, {"num_local_experts"}, {"num_experts_per_tok"}, f.size({"intermediate_size"}));
  const std::uint32_t window = window_of(f, 0);
  append_mixed(a, l, {}, experts, windows_of(f, layers_of(f), window, [](std::uint32_t) { return true; }),
               [](std::uint32_t) { return true; });
  return a;
}

Architecture read_qwen2_moe(Fields& f) {
  Architecture a = base(f, false, 32768);
  Layer l{.attention = heads_of(f, a.hidden, {.kv_heads = 16})};
  bias_qkv(l.attention, f.flag({"qkv_bias"}, true));
  Experts experts = routed(f, {"num_experts"}, {"num_experts_per_tok"}, f.size({"moe_intermediate_size"}));
  experts.shared.width = f.size({"shared_expert_intermediate_size"});
  experts.shared_gate = true;
  return qwen_moe(f, std::move(a), l, experts);
}

Architecture read_qwen3_moe(Fields& f) {
  Architecture a = base(f, false, 32768);
  Layer l{.attention = heads_of(f, a.hidden, {.kv_heads = 4})};
  l.attention.qk_norm = NormKind::kRms;
  bias_all(l.attention, f.flag({"attention_bias"}, false));
  return qwen_moe(f, std::move(a), l,
                  routed(f, {"num_experts", "num_local_experts"}, {"num_experts_per_tok"},
                         f.size({"moe_intermediate_size"})));
}

Architecture read_deepseek(Fields& f) {
  Architecture a = base(f, false, 2048);
  Layer l{.attention = heads_of(f, a.hidden)};
  bias_all(l.attention, f.flag({"attention_bias"}, false));
  return deepseek(f, std::move(a), l, false);
}

Architecture read_deepseek_v2(Fields& f) {
  Architecture a = base(f, false, 2048);
  return deepseek(f, std::move(a), Layer{.attention = latent(f)}, false);
}

Architecture read_deepseek_v3(Fields& f) {
  Architecture a = base(f, false, 4096);
  a = deepseek(f, std::move(a), Layer{.attention = latent(f)},
               f.text({"topk_method"}, "noaux_tc") == "noaux_tc");
  name_prediction_layers(f, a);
  return a;
}

}  // namespace trainhost::model
