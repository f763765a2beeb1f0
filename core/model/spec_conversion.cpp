// Conversions between ModelSpec and Architecture: from_fields() for trainable families, whose fields have
// been validated; outline() for lists, messages and plugins, where config_json stays the complete
// description.
#include <algorithm>
#include <cassert>

#include "core/base/error.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

/// The first of these fields that is a positive number; 0 if none is.
std::uint32_t first_positive(ConfigFields& f, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    try {
      if (const std::uint32_t n = f.number({name}, 0)) return n;
      // Fields of an unknown family may have any type; a wrong one counts as absent.
    } catch (const Error&) {
    }
  }
  return 0;
}

bool read_flag(ConfigFields& f, std::string_view name, bool fallback) {
  try {
    return f.flag({name}, fallback);
  } catch (const Error&) {
    return fallback;
  }
}

}  // namespace

Architecture from_fields(const ModelSpec& m) {
  constexpr std::uint32_t kMostLayers = 4096;  // limit of the run file; published models have up to 126
  if (m.layers > kMostLayers)
    throw usage_error("model.num_hidden_layers = " + std::to_string(m.layers) +
                      " is too large: expected at most " + std::to_string(kMostLayers));
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
  // Windows may differ by layer; equal neighbours become one run.
  for (std::uint32_t i = 0; i < m.layers; ++i) {
    l.attention.window = m.window(i);
    append(a, l);
  }
  return a;
}

ModelSpec outline(const Architecture& a, std::string_view json) {
  ModelSpec m;
  m.family = a.family, m.name = a.name, m.config_json = json;
  m.vocab = a.vocab, m.hidden = a.hidden, m.layers = a.layer_count(), m.max_positions = a.max_positions;
  m.tied = a.tied;
  assert(!a.layers.empty());
  // The first layer that has a part stands for all: a list has one column per dimension. The heads of a model
  // without any attention are those of its linear attention.
  const auto first = [&](auto&& has) -> const Layer& {
    const auto run = std::ranges::find_if(a.layers, [&](const LayerRun& r) { return has(r.layer); });
    return (run == a.layers.end() ? a.layers.front() : *run).layer;
  };
  const Layer& l = first([](const Layer& x) { return x.attention.heads != 0; });
  m.heads = l.attention.heads, m.kv_heads = l.attention.kv_heads, m.head_dim = l.attention.head_dim;
  if (m.heads == 0) m.heads = m.kv_heads = l.linear.value_heads, m.head_dim = l.linear.value_dim;
  const Layer& wide = first([](const Layer& x) { return x.mlp.width || x.experts.each.width; });
  m.intermediate = wide.mlp.width ? wide.mlp.width : wide.experts.each.width;
  m.qkv_bias = l.attention.q_bias, m.o_bias = l.attention.o_bias, m.mlp_bias = l.mlp.up_bias;
  m.qk_norm = l.attention.qk_norm != NormKind::kNone;
  for (const LayerRun& r : a.layers) m.sliding_window = std::max(m.sliding_window, r.layer.attention.window);
  return m;
}

ModelSpec outline_of_unknown(std::string_view family, std::string_view json) {
  ConfigFields f(json);
  ModelSpec m;
  m.family = family, m.config_json = json;
  m.vocab = first_positive(f, {"vocab_size"});
  m.hidden = first_positive(f, {"hidden_size", "n_embd", "d_model"});
  m.layers = first_positive(f, {"num_hidden_layers", "n_layer", "n_layers"});
  m.heads = first_positive(f, {"num_attention_heads", "n_head", "n_heads"});
  m.kv_heads = first_positive(f, {"num_key_value_heads", "num_kv_heads"});
  // Falcon's flag for one KV head.
  if (!m.kv_heads) m.kv_heads = read_flag(f, "multi_query", false) ? 1 : m.heads;
  m.head_dim = first_positive(f, {"head_dim"});
  if (!m.head_dim && m.heads) m.head_dim = m.hidden / m.heads;
  m.intermediate = first_positive(f, {"intermediate_size", "n_inner", "ffn_dim"});
  // At least 1, because a model without positions is rejected.
  m.max_positions = std::max<std::uint32_t>(
      1, first_positive(f, {"max_position_embeddings", "n_positions", "max_seq_len"}));
  m.sliding_window = first_positive(f, {"sliding_window"});
  m.tied = read_flag(f, "tie_word_embeddings", true);
  return m;
}

}  // namespace trainhost::model
