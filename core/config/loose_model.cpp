// Families that are planned by other estimators, or refused by name: their dimensions under the names that
// those families use. Lenient on purpose; whoever can plan them reads the raw config.
#include <algorithm>
#include <initializer_list>

#include "core/config/model_fields.hpp"

namespace trainhost::config {
namespace {

using Kind = Value::Kind;

std::uint32_t first_of(const Fields& fields, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = fields.find(name);
    if (found == fields.end() || found->second.kind != Kind::kInteger) continue;
    const std::int64_t n = found->second.integer;
    if (n > 0 && n <= INT32_MAX) return static_cast<std::uint32_t>(n);
  }
  return 0;
}

double number_of(const Fields& fields, std::initializer_list<const char*> names, double fallback) {
  for (const char* name : names) {
    const auto found = fields.find(name);
    if (found != fields.end() &&
        (found->second.kind == Kind::kNumber || found->second.kind == Kind::kInteger))
      return found->second.number;
  }
  return fallback;
}

bool is_true(const Fields& fields, const char* name, bool fallback) {
  const auto found = fields.find(name);
  return found != fields.end() && found->second.kind == Kind::kBool ? found->second.boolean : fallback;
}

}  // namespace

ModelSpec loose_model(const std::string& family, const Fields& f) {
  ModelSpec m;
  m.family = family;
  m.vocab = first_of(f, {"vocab_size"});
  m.hidden = first_of(f, {"hidden_size", "n_embd", "d_model"});
  m.layers = first_of(f, {"num_hidden_layers", "n_layer", "n_layers"});
  m.heads = first_of(f, {"num_attention_heads", "n_head", "n_heads"});
  m.kv_heads = first_of(f, {"num_key_value_heads", "num_kv_heads"});
  if (!m.kv_heads) m.kv_heads = is_true(f, "multi_query", false) ? 1 : m.heads;
  m.head_dim = first_of(f, {"head_dim"});
  if (!m.head_dim && m.heads) m.head_dim = m.hidden / m.heads;
  m.intermediate = first_of(f, {"intermediate_size", "n_inner", "ffn_dim"});
  m.max_positions =
      std::max<std::uint32_t>(1, first_of(f, {"max_position_embeddings", "n_positions", "max_seq_len"}));
  m.sliding_window = first_of(f, {"sliding_window"});
  // transformers' own default, which these families mostly keep.
  m.tied = is_true(f, "tie_word_embeddings", true);
  m.norm_eps = number_of(f, {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}, m.norm_eps);
  m.rope_theta = number_of(f, {"rope_theta"}, m.rope_theta);
  m.initializer_range = number_of(f, {"initializer_range"}, m.initializer_range);
  return m;
}

}  // namespace trainhost::config
