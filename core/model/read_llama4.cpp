// Readers of Llama 4: layers with rotary positions see a chunk of the sequence, every fourth layer sees all
// of it and has no rotary positions; all layers (Scout) or every second one (Maverick) have experts with a
// shared expert.
#include <algorithm>

#include "core/model/family_readers.hpp"

namespace trainhost::model {

Architecture read_llama4_text(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 131072);
  const std::uint32_t layers = read_layer_count(f);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8, .head_dim = 128})};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  Experts experts =
      read_routed_experts(f, {"num_local_experts"}, {"num_experts_per_tok"}, f.size({"intermediate_size"}));
  experts.shared.width = experts.each.width;
  const Mlp dense{.width = f.size({"intermediate_size_mlp"}, 16384)};

  const std::vector<std::uint32_t> listed = f.numbers("no_rope_layers");  // 1: has rotary positions
  const std::uint32_t interval = f.size({"no_rope_layer_interval"}, 4);
  const auto rotary = [&](std::uint32_t i) {
    return i < listed.size() ? listed[i] != 0 : (i + 1) % interval != 0;
  };
  // null: no chunks.
  const std::uint32_t chunk = f.size({"attention_chunk_size"}, f.present("attention_chunk_size") ? 0 : 8192);
  const std::vector<std::string> types = read_layer_types(
      f, "layer_types", layers, {"chunked_attention", "full_attention"},
      [&](std::uint32_t i) { return rotary(i) && chunk ? "chunked_attention" : "full_attention"; });

  const std::uint32_t step = f.size({"interleave_moe_layer_step"}, 1);
  const bool named = f.given("moe_layers");
  const std::vector<std::uint32_t> sparse = f.numbers("moe_layers");
  const bool norms = f.flag({"use_qk_norm"}, true);
  for (std::uint32_t i = 0; i < layers; ++i) {
    Layer one = l;
    one.attention.rotary = rotary(i);
    one.attention.qk_norm = norms && rotary(i) ? NormKind::kUnscaled : NormKind::kNone;
    if (types[i] == "chunked_attention") one.attention.window = chunk, one.attention.chunked = chunk != 0;
    if (named ? std::ranges::find(sparse, i) != sparse.end() : (i + 1) % step == 0)
      one.experts = experts;
    else
      one.mlp = dense;
    append(a, one);
  }
  return a;
}

Architecture read_llama4(ConfigFields& f) { return read_text_config(f, read_llama4_text); }

}  // namespace trainhost::model
