// Readers of Nemotron (a dense decoder with LayerNorms and a plain MLP) and Nemotron-H, each of whose layers
// is one of Mamba 2, attention, an MLP or experts.
#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

/// "M*-E" -> types of layers; else the list layers_block_type.
std::vector<std::string> read_blocks(ConfigFields& f) {
  std::vector<std::string> types;
  const std::string pattern = f.text({"hybrid_override_pattern"}, "");
  for (const char c : pattern) {
    const char* type = c == 'M'   ? "linear_attention"
                       : c == '*' ? "full_attention"
                       : c == '-' ? "mlp"
                       : c == 'E' ? "moe"
                                  : nullptr;
    if (!type)
      f.fail("hybrid_override_pattern", "has '" + escaped(std::string(1, c), 8) +
                                            "': expected M (Mamba), * (attention), - (MLP) or E (experts)");
    types.emplace_back(type);
  }
  const char* field = f.given("layers_block_type") ? "layers_block_type" : "layer_types";
  if (types.empty() && !f.given(field))
    f.fail("hybrid_override_pattern", "is missing", "set it, or layers_block_type: the kind of each layer");
  if (types.empty())
    types = read_layer_types(f, field, static_cast<std::uint32_t>(f.texts(field).size()),
                             {"linear_attention", "full_attention", "mlp", "moe"}, nullptr);
  for (const char* unused : {"layers_block_type", "layer_types"}) f.mark_as_read(unused);
  const std::uint32_t stated = f.number({"num_hidden_layers"}, 0);
  if (stated && stated != types.size())
    f.fail("num_hidden_layers", "= " + std::to_string(stated) + ", but " +
                                    (pattern.empty() ? field : "hybrid_override_pattern") +
                                    " has the kinds of " + std::to_string(types.size()));
  return types;
}

LinearAttention read_mamba(ConfigFields& f) {
  LinearAttention m;
  m.value_heads = f.size({"mamba_num_heads"}, 128);
  m.value_dim = f.size({"mamba_head_dim"}, 64);
  m.key_heads = f.size({"n_groups", "mamba_n_groups"}, 8);
  m.key_dim = f.size({"ssm_state_size"}, 128);
  m.kernel = f.size({"conv_kernel", "mamba_d_conv"}, 4);
  m.chunk = f.size({"chunk_size", "mamba_chunk_size"}, 128);
  m.gates = 1, m.head_weights = 3;
  m.convolution_bias = f.flag({"use_conv_bias", "mamba_conv_bias"}, true);
  m.in_bias = m.out_bias = f.flag({"use_bias"}, false);
  for (const char* unused : {"expand", "mamba_expand", "mamba_proj_bias"}) f.mark_as_read(unused);
  if (m.value_heads % m.key_heads)
    f.fail("n_groups", "= " + std::to_string(m.key_heads) +
                           " does not divide mamba_num_heads = " + std::to_string(m.value_heads));
  return m;
}

Experts read_experts(ConfigFields& f, bool bias) {
  Experts e = read_routed_experts(f, {"n_routed_experts", "num_local_experts"}, {"num_experts_per_tok"},
                                  f.size({"moe_intermediate_size"}));
  e.each.gated = false;
  e.shared = {.gated = false,
              .up_bias = bias,
              .down_bias = bias,
              .width = f.size({"moe_shared_expert_intermediate_size"}, 7688)};
  e.latent = f.size({"moe_latent_size"}, 0), e.latent_bias = bias;
  return e;
}

}  // namespace

Architecture read_nemotron(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 4096);
  a.final_norm = NormKind::kLayer;
  Layer l{.attention = read_heads(f, a.hidden), .norm = NormKind::kLayer};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  const bool bias = f.flag({"mlp_bias"}, false);
  l.mlp = {.gated = false, .up_bias = bias, .down_bias = bias, .width = f.size({"intermediate_size"})};
  append_equal(a, l, read_layer_count(f));
  return a;
}

/// One norm per layer. Attention has no rotary positions and no biases, whatever attention_bias says; the
/// head is not tied, whatever tie_word_embeddings says, as in transformers.
Architecture read_nemotron_h(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 4096);
  a.tied = false;
  const std::vector<std::string> types = read_blocks(f);
  const auto has = [&](const char* type) { return std::ranges::find(types, type) != types.end(); };
  const bool bias = f.flag({"mlp_bias"}, false);
  Layer mamba{.norms = 1}, attention = mamba, dense = mamba, sparse = mamba;
  if (has("linear_attention")) mamba.linear = read_mamba(f);
  if (has("full_attention")) {
    attention.attention =
        read_heads(f, a.hidden, {.kv_heads = 8, .head_dim = f.size({"attention_head_dim"}, 128)});
    attention.attention.rotary = false;
  }
  if (has("mlp"))
    dense.mlp = {.gated = false, .up_bias = bias, .down_bias = bias, .width = f.size({"intermediate_size"})};
  if (has("moe")) sparse.experts = read_experts(f, bias);
  for (const std::string& type : types)
    append(a, type == "linear_attention" ? mamba
              : type == "full_attention" ? attention
              : type == "mlp"            ? dense
                                         : sparse);
  for (const char* unused : {"attention_bias",
                             "attention_head_dim",
                             "sliding_window",
                             "n_shared_experts",
                             "intermediate_size",
                             "moe_intermediate_size",
                             "moe_shared_expert_intermediate_size",
                             "moe_latent_size",
                             "n_routed_experts",
                             "num_experts_per_tok",
                             "num_local_experts",
                             "mamba_num_heads",
                             "mamba_head_dim",
                             "n_groups",
                             "mamba_n_groups",
                             "ssm_state_size",
                             "conv_kernel",
                             "mamba_d_conv",
                             "chunk_size",
                             "mamba_chunk_size",
                             "use_conv_bias",
                             "mamba_conv_bias",
                             "use_bias",
                             "expand",
                             "mamba_expand",
                             "mamba_proj_bias",
                             "num_attention_heads",
                             "num_key_value_heads",
                             "head_dim",
                             "mtp_layers_block_type",
                             "mtp_hybrid_override_pattern"})
    f.mark_as_read(unused);
  if (const std::uint32_t modules = f.number({"num_nextn_predict_layers"}, 0))
    a.notes.push_back("num_nextn_predict_layers = " + std::to_string(modules) +
                      ": the multi-token prediction module is not counted");
  return a;
}

}  // namespace trainhost::model
