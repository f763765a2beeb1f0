// Readers of mixture-of-experts families: a router of E x H, E gated MLPs of which a token uses a few, and
// shared experts. Each family has its own rule for which layers have experts; the others are dense.
#include <algorithm>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {

/// Else the counts of active parameters would exceed the total.
Experts read_routed_experts(ConfigFields& f, FieldNames count, FieldNames active, std::uint32_t width) {
  Experts e;
  e.count = f.size(count);
  e.active = f.size(active);
  e.each = {.width = width};
  if (e.active > e.count)
    f.fail(*active.begin(), "= " + std::to_string(e.active) + " is more than " + std::string(*count.begin()) +
                                " = " + std::to_string(e.count));
  return e;
}

void append_mixed(Architecture& a, const Layer& l, const Mlp& dense, const Experts& experts,
                  const std::vector<std::uint32_t>& windows,
                  const std::function<bool(std::uint32_t)>& sparse) {
  // A run of the result is a maximal sequence of equal layers: append() merges.
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

/// Each module has a layer like the last one, a 2H -> H projection and three norms, and shares embedding and
/// head with the model.
void note_prediction_modules(ConfigFields& f, Architecture& a) {
  const std::uint32_t modules = f.number({"num_nextn_predict_layers"}, 0);
  if (!modules) return;
  const std::uint64_t h = a.hidden, each = checked_add(layer_elements(a.layers.back().layer, h),
                                                       checked_add(checked_mul(2, h, h), 3 * h));
  a.notes.push_back("num_nextn_predict_layers = " + std::to_string(modules) +
                    ": the multi-token prediction module, " + format_count(checked_mul(each, modules)) +
                    " parameters without the shared embedding and head, is not counted");
}

namespace {

/// Every decoder_sparse_step-th layer has experts, except those in mlp_only_layers.
Architecture append_qwen_layers(ConfigFields& f, Architecture a, const Layer& l, Experts experts) {
  const Mlp dense{.width = f.size({"intermediate_size"})};
  const std::uint32_t step = f.size({"decoder_sparse_step"}, 1);
  const std::vector<std::uint32_t> only = f.numbers("mlp_only_layers");
  // Layers count from 1 in this rule, from 0 in mlp_only_layers.
  append_mixed(a, l, dense, experts, read_qwen_windows(f, read_layer_count(f)), [&](std::uint32_t i) {
    return (i + 1) % step == 0 && std::find(only.begin(), only.end(), i) == only.end();
  });
  return a;
}

/// The first layers are dense, then every moe_layer_freq-th has experts. The shared experts are counted as
/// one MLP of their total width.
Architecture append_deepseek_layers(ConfigFields& f, Architecture a, const Layer& l, bool router_bias) {
  const std::uint32_t width = f.size({"moe_intermediate_size"}), layers = read_layer_count(f);
  Experts experts = read_routed_experts(f, {"n_routed_experts"}, {"num_experts_per_tok"}, width);
  const std::uint64_t shared = std::uint64_t{f.number({"n_shared_experts"}, 0)} * width;
  if (shared > INT32_MAX) f.fail("n_shared_experts", "* moe_intermediate_size is too large");
  experts.shared.width = static_cast<std::uint32_t>(shared);
  experts.router_bias = router_bias;
  const std::uint32_t first = f.number({"first_k_dense_replace"}, 0), step = f.size({"moe_layer_freq"}, 1);
  append_mixed(a, l, {.width = f.size({"intermediate_size"})}, experts, std::vector<std::uint32_t>(layers, 0),
               [&](std::uint32_t i) { return i >= first && i % step == 0; });
  return a;
}

/// Multi-head latent attention (MLA).
/// q, k and v have as many heads as the model; the cache has one narrow vector per token for all heads.
/// num_key_value_heads is in the configs but is not used.
Attention read_latent_attention(ConfigFields& f) {
  Attention at;
  at.latent = true;
  at.heads = at.kv_heads = f.size({"num_attention_heads"});
  f.mark_as_read("num_key_value_heads");
  at.q_lora_rank = f.size({"q_lora_rank"}, f.present("q_lora_rank") ? 0 : 1536);
  at.kv_lora_rank = f.size({"kv_lora_rank"});
  at.rope_head_dim = f.size({"qk_rope_head_dim"});
  at.nope_head_dim = f.size({"qk_nope_head_dim"});
  at.v_head_dim = f.size({"v_head_dim"});
  // Width of q and k per head; the values have a width of their own.
  at.head_dim = at.nope_head_dim + at.rope_head_dim;
  for (const char* redundant : {"qk_head_dim", "head_dim"}) f.mark_as_read(redundant);
  at.q_bias = at.k_bias = at.o_bias = f.flag({"attention_bias"}, false);
  return at;
}

/// Layers of which each has experts, and a window if the config states one.
void append_routed(ConfigFields& f, Architecture& a, const Layer& l) {
  const auto every = [](std::uint32_t) { return true; };
  const Experts experts =
      read_routed_experts(f, {"num_local_experts"}, {"num_experts_per_tok"}, f.size({"intermediate_size"}));
  const std::uint32_t window = read_window(f, 0);
  append_mixed(a, l, {}, experts, read_windows(f, read_layer_count(f), window, every), every);
}

}  // namespace

Architecture read_mixtral(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  const Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8})};
  append_routed(f, a, l);
  return a;
}

/// Phi-3.5-MoE: LayerNorms with shift, and biases of attention and head as the config states.
Architecture read_phimoe(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  a.final_norm = NormKind::kLayer, a.head_bias = f.flag({"lm_head_bias"}, false);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8}), .norm = NormKind::kLayer};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  append_routed(f, a, l);
  return a;
}

Architecture read_qwen2_moe(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 32768);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 16})};
  set_qkv_bias(l.attention, f.flag({"qkv_bias"}, true));
  Experts experts =
      read_routed_experts(f, {"num_experts"}, {"num_experts_per_tok"}, f.size({"moe_intermediate_size"}));
  experts.shared.width = f.size({"shared_expert_intermediate_size"});
  experts.shared_gate = true;
  return append_qwen_layers(f, std::move(a), l, experts);
}

Architecture read_qwen3_moe(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 32768);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 4})};
  l.attention.qk_norm = NormKind::kRms;
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  return append_qwen_layers(f, std::move(a), l,
                            read_routed_experts(f, {"num_experts", "num_local_experts"},
                                                {"num_experts_per_tok"}, f.size({"moe_intermediate_size"})));
}

Architecture read_deepseek(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 2048);
  Layer l{.attention = read_heads(f, a.hidden)};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  return append_deepseek_layers(f, std::move(a), l, false);
}

Architecture read_deepseek_v2(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 2048);
  return append_deepseek_layers(f, std::move(a), Layer{.attention = read_latent_attention(f)}, false);
}

Architecture read_deepseek_v3(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 4096);
  // noaux_tc routes with a learned bias per expert, and is the default of the class.
  a = append_deepseek_layers(f, std::move(a), Layer{.attention = read_latent_attention(f)},
                             f.text({"topk_method"}, "noaux_tc") == "noaux_tc");
  note_prediction_modules(f, a);
  return a;
}

/// GLM-4.7-Flash: latent attention and the experts of DeepSeek V3; the router's bias is a buffer.
Architecture read_glm4_moe_lite(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 202752);
  Layer l{.attention = read_latent_attention(f)};
  if (!f.present("q_lora_rank")) l.attention.q_lora_rank = 768;
  const std::uint32_t width = f.size({"moe_intermediate_size"}), layers = read_layer_count(f);
  Experts experts =
      read_routed_experts(f, {"n_routed_experts", "num_local_experts"}, {"num_experts_per_tok"}, width);
  const std::uint64_t shared = std::uint64_t{f.number({"n_shared_experts"}, 1)} * width;
  if (shared > INT32_MAX) f.fail("n_shared_experts", "* moe_intermediate_size is too large");
  experts.shared.width = static_cast<std::uint32_t>(shared);
  const std::uint32_t first = f.number({"first_k_dense_replace"}, 1);
  const std::vector<std::string> mlps =
      read_layer_types(f, "mlp_layer_types", layers, {"dense", "sparse"},
                       [&](std::uint32_t i) { return i < first ? "dense" : "sparse"; });
  append_mixed(a, l, {.width = f.size({"intermediate_size"})}, experts, std::vector<std::uint32_t>(layers, 0),
               [&](std::uint32_t i) { return mlps[i] == "sparse"; });
  note_prediction_modules(f, a);
  return a;
}

/// Mistral 4: the layers of DeepSeek V3, with another rank of the queries and without a bias of the router.
Architecture read_mistral4(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 1048576);
  Layer l{.attention = read_latent_attention(f)};
  if (!f.present("q_lora_rank")) l.attention.q_lora_rank = 1024;
  return append_deepseek_layers(f, std::move(a), l, false);
}

/// Kimi K2.5 and later: the text model has the shape of DeepSeek-V3.
Architecture read_kimi_k25(ConfigFields& f) { return read_text_config(f, read_deepseek_v3); }

/// Kimi Linear: Kimi Delta Attention in most layers, latent attention without a rank of the queries in the
/// others. The router's correction bias is not counted: transformers keeps it as a buffer.
Architecture read_kimi_linear(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 1048576);
  a.tied = false;  // the class ties nothing, whatever the config says
  const std::uint32_t layers = read_layer_count(f);
  ConfigFields& sizes = f.object("linear_attn_config");
  Layer latent{.attention = read_latent_attention(f)};
  if (!f.given("q_lora_rank")) latent.attention.q_lora_rank = 0;
  LinearAttention d;
  d.key_heads = d.value_heads = sizes.size({"num_heads"}, f.size({"linear_num_heads"}, 32));
  d.key_dim = d.value_dim = d.gate_rank = sizes.size({"head_dim"}, f.size({"linear_head_dim"}, 128));
  d.kernel = sizes.size({"short_conv_kernel_size"}, f.size({"linear_conv_kernel_dim"}, 4));
  d.chunk = 64;
  d.gates = d.head_weights = 1;
  d.norm_per_head = d.delta = true;
  // Numbers of layers, counted from 1.
  const std::vector<std::uint32_t> full = sizes.numbers("full_attn_layers");
  sizes.mark_as_read("kda_layers");
  const std::vector<std::string> types = read_layer_types(
      f, "layer_types", layers, {"linear_attention", "full_attention"}, [&](std::uint32_t i) {
        const bool attends = full.empty() ? i && i % 4 == 0 : std::ranges::find(full, i + 1) != full.end();
        return attends ? "full_attention" : "linear_attention";
      });
  const std::uint32_t width = f.size({"moe_intermediate_size"}, 1024);
  Experts experts = read_routed_experts(f, {"num_experts", "num_local_experts"},
                                        {"num_experts_per_token", "num_experts_per_tok"}, width);
  const std::uint64_t shared = std::uint64_t{f.number({"num_shared_experts", "n_shared_experts"}, 1)} * width;
  if (shared > INT32_MAX) f.fail("num_shared_experts", "* moe_intermediate_size is too large");
  experts.shared.width = static_cast<std::uint32_t>(shared);
  const std::uint32_t first = f.number({"first_k_dense_replace"}, 1);
  const std::vector<std::string> mlps =
      read_layer_types(f, "mlp_layer_types", layers, {"dense", "sparse"},
                       [&](std::uint32_t i) { return i < first ? "dense" : "sparse"; });
  const Mlp dense{.width = f.size({"intermediate_size"}, 9216)};
  a.max_positions = f.size({"model_max_length", "max_position_embeddings"}, 1048576);
  for (const char* other : {"moe_layer_freq", "mla_use_nope", "moe_renormalize", "moe_router_activation_func",
                            "use_grouped_topk", "num_expert_group"})
    f.mark_as_read(other);
  for (std::uint32_t i = 0; i < layers; ++i) {
    Layer l = latent;
    if (types[i] == "linear_attention") l = Layer{.linear = d};
    if (mlps[i] == "dense")
      l.mlp = dense;
    else
      l.experts = experts;
    append(a, l);
  }
  return a;
}

/// The router's correction bias is not counted: transformers keeps it as a buffer, not as a trained weight.
Architecture read_glm4_moe(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8, .head_dim = 128})};
  set_qkv_bias(l.attention, f.flag({"attention_bias"}, false));
  if (f.flag({"use_qk_norm"}, false)) l.attention.qk_norm = NormKind::kRms;
  a = append_deepseek_layers(f, std::move(a), l, false);
  note_prediction_modules(f, a);
  return a;
}

/// All projections have biases, and every second layer has a window. The published files store the experts in
/// MXFP4, two weights per byte; counts here are of weights, as a training run has them in bf16.
Architecture read_gpt_oss(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8, .head_dim = 64})};
  set_all_biases(l.attention, f.flag({"attention_bias"}, true));
  l.attention.sinks = true;
  f.mark_as_read("experts_per_token");  // the same as num_experts_per_tok
  Experts experts =
      read_routed_experts(f, {"num_local_experts"}, {"num_experts_per_tok"}, f.size({"intermediate_size"}));
  experts.each.up_bias = experts.each.down_bias = experts.router_bias = true;
  const std::uint32_t window = read_window(f, 128);
  append_mixed(a, l, {}, experts,
               read_windows(f, read_layer_count(f), window, [](std::uint32_t i) { return i % 2 == 0; }),
               [](std::uint32_t) { return true; });
  return a;
}

}  // namespace trainhost::model
