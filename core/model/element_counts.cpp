// Parameter counts of a decoder in closed form, independent of the number of layers. Tests
// compare them with the same weights listed one by one (tests/support/architecture_tensors.hpp). Widths of
// Attention are here too.
#include "core/base/checked.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::model {
namespace {

// All sums and products are checked: sizes of a config are only bounded one by one (31 bits), not together.
std::uint64_t sum(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t s = 0;
  for (std::uint64_t p : parts) s = checked_add(s, p, "a count of parameters");
  return s;
}

std::uint64_t if_present(bool present, std::uint64_t n) { return present ? n : 0; }

/// Norms of q and k: one vector of D for all heads, or vectors of the width of all heads.
std::uint64_t qk_norm_elements(const Attention& a) {
  if (a.qk_norm_per_head) return (a.reuses_kv ? 1 : 2) * norm_elements(a.qk_norm, a.head_dim);
  return sum(
      {norm_elements(a.qk_norm, a.q_width()), a.reuses_kv ? 0 : norm_elements(a.qk_norm, a.k_width())});
}

/// H -> q_lora -> A*(nope+rope), or H -> A*(nope+rope); H -> kv_lora + rope; kv_lora -> A*(nope+v); A*v -> H.
/// Each of the two low-rank vectors has an RMSNorm.
std::uint64_t latent_elements(const Attention& a, std::uint64_t h) {
  const std::uint64_t narrow = std::uint64_t{a.kv_lora_rank} + a.rope_head_dim;
  const std::uint64_t wide = checked_mul(a.heads, std::uint64_t{a.nope_head_dim} + a.v_head_dim);
  const std::uint64_t q =
      a.q_lora_rank
          ? sum({checked_mul(h, a.q_lora_rank), a.q_lora_rank, checked_mul(a.q_lora_rank, a.q_width())})
          : checked_mul(h, a.q_width());
  return sum({q, checked_mul(h, narrow), a.kv_lora_rank, checked_mul(a.kv_lora_rank, wide),
              checked_mul(a.out_width(), h), if_present(a.q_bias, a.q_lora_rank),
              if_present(a.k_bias, narrow), if_present(a.o_bias, h)});
}

std::uint64_t attention_elements(const Attention& a, std::uint64_t h) {
  if (a.heads == 0) return 0;
  if (a.latent) return latent_elements(a, h);
  const std::uint64_t k = a.reuses_kv ? 0 : a.k_width(), v = a.reuses_kv || a.v_is_k ? 0 : a.v_width();
  return sum({checked_mul(h, a.q_rows()), checked_mul(h, k), checked_mul(h, v), checked_mul(a.out_width(), h),
              if_present(a.q_bias, a.q_rows()), if_present(a.k_bias, k), if_present(a.v_bias, v),
              if_present(a.o_bias, h), if_present(a.sinks, a.heads), qk_norm_elements(a)});
}

std::uint64_t linear_elements(const LinearAttention& a, std::uint64_t h) {
  if (a.value_heads == 0) return 0;
  // The decay has a bias per channel.
  const std::uint64_t gates = a.gate_rank
                                  ? sum({checked_mul(2, h, a.gate_rank),
                                         checked_mul(2, a.gate_rank, a.value_width()), a.value_width()})
                                  : 0;
  return sum({checked_mul(h, a.in_width()), if_present(a.in_bias, a.in_width()), gates,
              checked_mul(a.convolution_width(), std::uint64_t{a.kernel} + (a.convolution_bias ? 1 : 0)),
              checked_mul(a.head_weights, a.value_heads),
              if_present(a.normed, a.norm_per_head ? a.value_dim : a.value_width()),
              checked_mul(a.value_width(), h), if_present(a.out_bias, h)});
}

// Without the down projection, the matrices have I rows and may each have a bias of I.
std::uint64_t mlp_elements(const Mlp& m, std::uint64_t h) {
  const std::uint64_t in = m.matrices() - 1;
  return sum({checked_mul(m.matrices(), h, m.width), if_present(m.up_bias, checked_mul(in, m.width)),
              if_present(m.down_bias && m.width, h)});
}

// counted: all experts for the total, the active ones for the parameters that a token uses. The router and
// the shared expert always count.
std::uint64_t expert_elements(const Experts& e, std::uint64_t h, std::uint64_t counted) {
  if (e.count == 0) return 0;
  const std::uint64_t into = e.latent ? e.latent : h;
  const std::uint64_t projections =
      e.latent ? sum({checked_mul(2, h, e.latent), if_present(e.latent_bias, sum({h, e.latent}))}) : 0;
  return sum({checked_mul(h, e.count), if_present(e.router_bias, e.count), projections,
              checked_mul(counted, mlp_elements(e.each, into)), mlp_elements(e.shared, h),
              if_present(e.shared_gate, h), if_present(e.router_scale, h)});
}

/// counted: number of routed experts to add.
std::uint64_t elements(const Layer& l, std::uint64_t h, std::uint64_t counted) {
  return sum({attention_elements(l.attention, h), linear_elements(l.linear, h), mlp_elements(l.mlp, h),
              expert_elements(l.experts, h, counted), checked_mul(l.norms, norm_elements(l.norm, h)),
              checked_mul(2, l.per_layer_width, h)});
}

}  // namespace

std::uint64_t norm_elements(NormKind kind, std::uint64_t n) {
  if (kind == NormKind::kNone || kind == NormKind::kUnscaled) return 0;
  return kind == NormKind::kLayer ? checked_mul(2, n) : n;
}

std::uint64_t Attention::q_width() const {
  return checked_mul(heads, latent ? std::uint64_t{nope_head_dim} + rope_head_dim : head_dim);
}
std::uint64_t Attention::q_rows() const { return gated ? checked_mul(2, q_width()) : q_width(); }
std::uint64_t Attention::k_width() const { return latent ? q_width() : checked_mul(kv_heads, head_dim); }
std::uint64_t Attention::v_width() const {
  return latent ? checked_mul(heads, v_head_dim) : checked_mul(kv_heads, head_dim);
}
std::uint64_t Attention::out_width() const { return checked_mul(heads, latent ? v_head_dim : head_dim); }
std::uint64_t Attention::cache_width() const {
  if (reuses_kv) return 0;
  return latent ? std::uint64_t{kv_lora_rank} + rope_head_dim : sum({k_width(), v_width()});
}

std::uint64_t LinearAttention::value_width() const { return checked_mul(value_heads, value_dim); }
std::uint64_t LinearAttention::convolution_width() const {
  return sum({checked_mul(2, key_heads, key_dim), value_width()});
}
std::uint64_t LinearAttention::in_width() const {
  return sum({convolution_width(), gate_rank ? 0 : value_width(), checked_mul(gates, value_heads)});
}
std::uint64_t LinearAttention::state_elements() const { return checked_mul(value_width(), key_dim); }

std::uint64_t layer_elements(const Layer& l, std::uint64_t hidden) {
  return elements(l, hidden, l.experts.count);
}
std::uint64_t active_layer_elements(const Layer& l, std::uint64_t hidden) {
  return elements(l, hidden, l.experts.active);
}

std::uint32_t Architecture::layer_count() const {
  std::uint32_t n = 0;
  for (const LayerRun& r : layers) n += r.count;
  return n;
}

bool Architecture::has_experts() const {
  for (const LayerRun& r : layers)
    if (r.layer.experts.count) return true;
  return false;
}

bool Architecture::has_linear_attention() const {
  for (const LayerRun& r : layers)
    if (r.layer.linear.value_heads) return true;
  return false;
}

// O(runs of layers), not O(layers): a search calls this for every model it looks at.
Counts count(const Architecture& a) {
  Counts c;
  const std::uint64_t h = a.hidden, e = a.embedding_width ? a.embedding_width : h;
  const std::uint64_t projection =
      if_present(e != h, checked_mul(e, h));  // E -> H after the embedding, H -> E before the head
  const std::uint64_t per_layer = checked_mul(a.layer_count(), a.per_layer_width);
  c.embedding = sum({checked_mul(a.vocab, e), projection, checked_mul(a.learned_positions, h),
                     norm_elements(a.embedding_norm, h), checked_mul(per_layer, sum({a.per_layer_vocab, h})),
                     a.per_layer_width});
  c.head = sum({projection, if_present(!a.tied, checked_mul(a.vocab, e)), if_present(a.head_bias, a.vocab)});
  c.final_norm = norm_elements(a.final_norm, h);
  // Embedding, head and final norm are used by every token, so they count as active.
  c.total = c.active = sum({c.embedding, c.head, c.final_norm});
  for (const LayerRun& r : a.layers) {
    c.total = sum({c.total, checked_mul(r.count, layer_elements(r.layer, h))});
    c.active = sum({c.active, checked_mul(r.count, active_layer_elements(r.layer, h))});
  }
  if (a.layers.empty()) return c;
  c.first_layer = layer_elements(a.layers.front().layer, h);
  c.last_layer = layer_elements(a.layers.back().layer, h);
  return c;
}

}  // namespace trainhost::model
