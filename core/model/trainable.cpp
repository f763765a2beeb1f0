// The families that we train, from the fields of a ModelSpec: what the user, a preset or core/runfile said,
// already checked. Never looks at config_json for a dimension: the fields are the truth there.
#include "core/base/error.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {

Architecture from_fields(const ModelSpec& m) {
  constexpr std::uint32_t kMostLayers = 4096;  // as in a run file; of any published model 126
  if (m.layers > kMostLayers)
    throw usage_error("model.num_hidden_layers = " + std::to_string(m.layers) + " is too large; at most " +
                      std::to_string(kMostLayers));
  Architecture a;
  a.family = m.family, a.name = m.name;
  a.vocab = m.vocab, a.max_positions = m.max_positions, a.hidden = m.hidden, a.embedding_width = m.hidden;
  a.tied = m.tied;
  Layer l;
  l.attention.heads = m.heads, l.attention.kv_heads = m.kv_heads, l.attention.head_dim = m.head_dim;
  l.attention.q_bias = l.attention.k_bias = l.attention.v_bias = m.qkv_bias;
  l.attention.o_bias = m.o_bias;
  if (m.qk_norm) l.attention.qk_norm = NormKind::kRms;
  l.mlp = {.gated = true, .up_bias = m.mlp_bias, .down_bias = m.mlp_bias, .width = m.intermediate};
  for (std::uint32_t i = 0; i < m.layers; ++i) {
    l.attention.window = m.window(i);
    append(a, l);
  }
  return a;
}

}  // namespace trainhost::model
