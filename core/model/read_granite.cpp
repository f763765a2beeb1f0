// Readers of Granite: 3.x dense, 3.x with experts, and 4.0, whose layers mostly have Mamba 2 instead of
// attention. The scales of Granite (embedding_multiplier and others) have no weights.
#include <algorithm>

#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

/// Attention and experts of Granite 3.x; `shared` is the default width of the expert that all tokens use.
Layer granite_layer(ConfigFields& f, std::uint32_t hidden, std::uint32_t shared) {
  Layer l{.attention = read_heads(f, hidden)};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  // Granite 4.0 without experts states 0 of them.
  if (f.number({"num_local_experts"}, 8))
    l.experts =
        read_routed_experts(f, {"num_local_experts"}, {"num_experts_per_tok"}, f.size({"intermediate_size"}));
  else
    for (const char* unused : {"num_experts_per_tok", "intermediate_size"}) f.mark_as_read(unused);
  l.experts.shared.width = f.number({"shared_intermediate_size"}, shared);
  return l;
}

/// Heads of width expand * H / heads; transformers rejects another mamba_d_head.
LinearAttention read_mamba(ConfigFields& f, std::uint32_t hidden) {
  LinearAttention m;
  m.value_heads = f.size({"mamba_n_heads"}, 128);
  m.key_heads = f.size({"mamba_n_groups"}, 1);
  m.key_dim = f.size({"mamba_d_state"}, 256);
  m.kernel = f.size({"mamba_d_conv"}, 4);
  m.chunk = f.size({"mamba_chunk_size"}, 256);
  m.gates = 1, m.head_weights = 3;
  m.convolution_bias = f.flag({"mamba_conv_bias"}, true);
  m.in_bias = m.out_bias = f.flag({"mamba_proj_bias"}, false);
  f.mark_as_read("mamba_d_head");
  const std::uint64_t width = std::uint64_t{f.size({"mamba_expand"}, 2)} * hidden;
  if (width % m.value_heads || width / m.value_heads > INT32_MAX)
    f.fail("mamba_n_heads", "= " + std::to_string(m.value_heads) +
                                " does not divide mamba_expand * hidden_size = " + std::to_string(width));
  m.value_dim = static_cast<std::uint32_t>(width / m.value_heads);
  if (m.value_heads % m.key_heads)
    f.fail("mamba_n_groups", "= " + std::to_string(m.key_heads) +
                                 " does not divide mamba_n_heads = " + std::to_string(m.value_heads));
  return m;
}

}  // namespace

Architecture read_granite(ConfigFields& f) { return read_llama(f); }

Architecture read_granitemoe(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  append_equal(a, granite_layer(f, a.hidden, 0), read_layer_count(f));
  return a;
}

Architecture read_granitemoeshared(ConfigFields& f) { return read_granitemoe(f); }

/// Layers of Mamba 2 and of attention; position_embedding_type "rope" gives the latter rotary positions. An
/// expert for all tokens is in every layer, and is the MLP of a model without routed experts.
Architecture read_granitemoehybrid(ConfigFields& f) {
  Architecture a = read_dimensions(f, false);
  const std::uint32_t layers = read_layer_count(f);
  Layer attention = granite_layer(f, a.hidden, 1024);
  if (attention.experts.count == 0) attention.mlp = attention.experts.shared, attention.experts = {};
  attention.attention.rotary = f.text({"position_embedding_type"}, "") == "rope";
  Layer mamba = attention;
  mamba.attention = {};
  const char* field = f.given("layers_block_type") ? "layers_block_type" : "layer_types";
  const std::vector<std::string> types =
      read_layer_types(f, field, layers, {"linear_attention", "full_attention"},
                       [](std::uint32_t) { return "linear_attention"; });
  // Granite 4.0 Micro has no such layer, and sizes that do not fit to its width.
  if (std::ranges::find(types, "linear_attention") != types.end()) mamba.linear = read_mamba(f, a.hidden);
  for (const std::string& type : types) append(a, type == "linear_attention" ? mamba : attention);
  for (const char* unused :
       {"mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv",
        "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "mamba_expand"})
    f.mark_as_read(unused);
  return a;
}

}  // namespace trainhost::model
