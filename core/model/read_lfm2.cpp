// Readers of LFM2: most layers have a gated short convolution instead of attention, with a dense MLP (LFM2)
// or with experts (LFM2-MoE). LFM2-VL is multimodal; its decoder is in text_config.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

/// One matrix gives B, C and x of width H each; the convolution reads B * x, and C scales its result.
LinearAttention read_short_convolution(ConfigFields& f, std::uint32_t hidden) {
  LinearAttention c;
  c.value_heads = hidden, c.value_dim = 1;  // channels, which are computed alone
  c.kernel = f.size({"conv_L_cache"}, 3);
  c.gates = 1;
  c.normed = false;
  c.in_bias = c.out_bias = c.convolution_bias = f.flag({"conv_bias"}, false);
  return c;
}

/// Appends the layers; mlp(layer) sets what follows the mixer.
Architecture append_layers(ConfigFields& f, Architecture a,
                           const std::function<void(Layer&, std::uint32_t)>& mlp) {
  // The published configs of LFM2 have another name for it.
  if (f.given("tie_embedding")) a.tied = f.flag({"tie_embedding"}, true);
  Layer attention{.attention = read_heads(f, a.hidden, {.kv_heads = 8})};
  attention.attention.qk_norm = NormKind::kRms;
  const Layer convolution{.linear = read_short_convolution(f, a.hidden)};
  const std::uint32_t layers = read_layer_count(f);
  const std::vector<std::uint32_t> full = f.numbers("full_attn_idxs");
  const std::vector<std::string> types =
      read_layer_types(f, "layer_types", layers, {"conv", "full_attention"}, [&](std::uint32_t i) {
        return full.empty() || std::ranges::find(full, i) != full.end() ? "full_attention" : "conv";
      });
  for (std::uint32_t i = 0; i < layers; ++i) {
    Layer l = types[i] == "conv" ? convolution : attention;
    mlp(l, i);
    append(a, l);
  }
  return a;
}

/// Lfm2MLP: two thirds of the stated width times a factor, rounded up.
std::uint32_t read_width(ConfigFields& f) {
  const std::uint32_t stated = f.size({"block_ff_dim", "intermediate_size"}, 12288);
  const std::uint64_t step = f.size({"block_multiple_of"}, 256);
  const double factor = f.factor({"block_ffn_dim_multiplier"}, 1);
  f.mark_as_read("intermediate_size");
  if (!f.flag({"block_auto_adjust_ff_dim"}, true)) return stated;
  const double scaled = std::floor(factor * std::floor(2.0 * stated / 3));
  if (scaled < 1) f.fail("block_ffn_dim_multiplier", "gives a width of less than one");
  if (scaled > INT32_MAX / 2 || step > INT32_MAX / 2)
    f.fail("block_ffn_dim_multiplier", "gives a width that is too large");
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(scaled) + step - 1) / step * step);
}

}  // namespace

Architecture read_lfm2(ConfigFields& f) {
  const Mlp mlp{.width = read_width(f)};
  f.mark_as_read("block_dim");
  return append_layers(f, read_dimensions(f, true, 128000), [&](Layer& l, std::uint32_t) { l.mlp = mlp; });
}

/// The router's bias is not counted: transformers keeps it as a buffer.
Architecture read_lfm2_moe(ConfigFields& f) {
  const Mlp dense{.width = f.size({"intermediate_size"}, 7168)};
  const Experts experts = read_routed_experts(f, {"num_experts"}, {"num_experts_per_tok"},
                                              f.size({"moe_intermediate_size"}, 1792));
  const std::uint32_t first = f.number({"num_dense_layers"}, 2);
  f.mark_as_read("use_expert_bias");
  return append_layers(f, read_dimensions(f, true, 128000), [&](Layer& l, std::uint32_t i) {
    if (i < first)
      l.mlp = dense;
    else
      l.experts = experts;
  });
}

Architecture read_lfm2_vl(ConfigFields& f) { return read_text_config(f, read_lfm2); }

}  // namespace trainhost::model
