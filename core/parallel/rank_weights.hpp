// Visits the weights of a decoder on one rank of a tensor- and expert-parallel group, with rows and columns
// on that rank. Used for counts, quantized storage and optimizers that depend on shapes. Column-parallel
// weights (q, k, v, gate, up, vocabulary) are split by rows, row-parallel ones (o, down) by columns; norms,
// routers, MLA's down-projections and biases after a reduction are replicated. Does not allocate.
#pragma once
#include "core/model/architecture.hpp"
#include "core/parallel/saturating_size.hpp"

namespace trainhost::parallel {

enum class Kind : std::uint8_t { kMatrix, kVector, kEmbedding };
/// Bits of RunSpec::lora_targets; kNever: no adapter possible.
enum Target : std::uint8_t { kQ = 0, kK, kV, kO, kGate, kUp, kDown, kNever };

struct Weight {
  Size rows, cols = 1, copies = 1;  // copies: equal tensors, one per expert
  Kind kind = Kind::kMatrix;
  Target target = kNever;
  bool expert = false;
  Size each() const { return rows * cols; }
  Size elements() const { return each() * copies; }
};

constexpr std::uint64_t up(std::uint64_t a, std::uint64_t n) { return n == 1 ? a : a / n + (a % n != 0); }

/// Widths of attention on one of tp ranks. With fewer KV heads than ranks every rank has one head
/// (replicated).
struct Widths {
  std::uint64_t heads, q, k, v, out;
  std::uint64_t cache;  // KV cache elements per token; the latent of MLA is replicated
};
inline Widths widths(const model::Attention& a, std::uint64_t tp) {
  const std::uint64_t heads = up(a.heads, tp), keys = up(a.kv_heads, tp);
  if (!a.latent)
    return {heads,
            heads * a.head_dim,
            keys * a.head_dim,
            keys * a.head_dim,
            heads * a.head_dim,
            a.reuses_kv ? 0 : 2 * keys * a.head_dim};
  const std::uint64_t qk = std::uint64_t{a.nope_head_dim} + a.rope_head_dim;
  return {heads,
          heads * qk,
          heads * qk,
          heads * a.v_head_dim,
          heads * a.v_head_dim,
          std::uint64_t{a.kv_lora_rank} + a.rope_head_dim};
}

/// Widths of linear attention on one of tp ranks, which have whole heads. Key heads fewer than ranks are
/// replicated, as KV heads are.
struct LinearWidths {
  std::uint64_t heads, keys, values;  // keys: of q, and of k
  std::uint64_t convolution() const { return 2 * keys + values; }
};
inline LinearWidths widths(const model::LinearAttention& a, std::uint64_t tp) {
  const std::uint64_t heads = up(a.value_heads, tp);
  return {heads, up(a.key_heads, tp) * a.key_dim, heads * a.value_dim};
}

inline std::uint64_t norm_of(model::NormKind k, std::uint64_t n) {
  if (k == model::NormKind::kNone || k == model::NormKind::kUnscaled) return 0;
  return k == model::NormKind::kLayer ? 2 * n : n;
}

template <class F>
void attention_weights(const model::Layer& l, std::uint64_t H, std::uint64_t tp, F&& f) {
  const model::Attention& a = l.attention;
  if (a.heads == 0) return;
  const Widths w = widths(a, tp);
  const std::uint64_t q_rows = a.gated ? 2 * w.q : w.q;
  const bool own_k = !a.reuses_kv, own_v = own_k && !a.v_is_k;
  if (a.latent) {
    const std::uint64_t latent = std::uint64_t{a.kv_lora_rank} + a.rope_head_dim;
    if (a.q_lora_rank) {
      f(Weight{a.q_lora_rank, H, 1, Kind::kMatrix, kQ});
      f(Weight{norm_of(model::NormKind::kRms, a.q_lora_rank), 1, 1, Kind::kVector});
    }
    f(Weight{w.q, a.q_lora_rank ? a.q_lora_rank : H, 1, Kind::kMatrix, kQ});
    f(Weight{latent, H, 1, Kind::kMatrix, kK});
    f(Weight{norm_of(model::NormKind::kRms, a.kv_lora_rank), 1, 1, Kind::kVector});
    f(Weight{w.heads * (std::uint64_t{a.nope_head_dim} + a.v_head_dim), a.kv_lora_rank, 1, Kind::kMatrix,
             kV});
  } else {
    f(Weight{q_rows, H, 1, Kind::kMatrix, kQ});
    if (own_k) f(Weight{w.k, H, 1, Kind::kMatrix, kK});
    if (own_v) f(Weight{w.v, H, 1, Kind::kMatrix, kV});
    if (norm_of(a.qk_norm, 1)) {
      f(Weight{norm_of(a.qk_norm, a.qk_norm_per_head ? a.head_dim : w.q), 1, 1, Kind::kVector});
      if (own_k) f(Weight{norm_of(a.qk_norm, a.qk_norm_per_head ? a.head_dim : w.k), 1, 1, Kind::kVector});
    }
  }
  f(Weight{H, w.out, 1, Kind::kMatrix, kO});
  // Biases of MLA are on its two down-projections, replicated.
  const bool low_q = a.latent && a.q_lora_rank;
  if (a.q_bias) f(Weight{low_q ? a.q_lora_rank : q_rows, 1, 1, Kind::kVector});
  if (a.k_bias && own_k)
    f(Weight{a.latent ? a.kv_lora_rank + std::uint64_t{a.rope_head_dim} : w.k, 1, 1, Kind::kVector});
  if (a.v_bias && own_v && !a.latent) f(Weight{w.v, 1, 1, Kind::kVector});
  if (a.o_bias) f(Weight{H, 1, 1, Kind::kVector});
  if (a.sinks) f(Weight{w.heads, 1, 1, Kind::kVector});
}

/// No adapters: the names of these matrices are not among the targets.
template <class F>
void linear_weights(const model::LinearAttention& a, std::uint64_t H, std::uint64_t tp, F&& f) {
  if (a.value_heads == 0) return;
  const LinearWidths w = widths(a, tp);
  const std::uint64_t in = w.convolution() + (a.gate_rank ? 0 : w.values) + a.gates * w.heads;
  f(Weight{in, H});
  if (a.gate_rank) {
    f(Weight{a.gate_rank, H, 2});
    f(Weight{w.values, a.gate_rank, 2});
    f(Weight{w.values, 1, 1, Kind::kVector});
  }
  f(Weight{w.convolution(), a.kernel, 1, Kind::kVector});
  if (a.head_weights) f(Weight{w.heads, 1, a.head_weights, Kind::kVector});
  if (a.normed) f(Weight{a.norm_per_head ? a.value_dim : w.values, 1, 1, Kind::kVector});
  f(Weight{H, w.values});
  if (a.in_bias) f(Weight{in, 1, 1, Kind::kVector});
  if (a.convolution_bias) f(Weight{w.convolution(), 1, 1, Kind::kVector});
  if (a.out_bias) f(Weight{H, 1, 1, Kind::kVector});
}

template <class F>
void mlp_weights(const model::Mlp& m, std::uint64_t H, std::uint64_t tp, std::uint64_t copies, bool expert,
                 F&& f) {
  if (!m.width || !copies) return;
  const std::uint64_t width = up(m.width, tp);
  if (m.gated) f(Weight{width, H, copies, Kind::kMatrix, kGate, expert});
  f(Weight{width, H, copies, Kind::kMatrix, kUp, expert});
  f(Weight{H, width, copies, Kind::kMatrix, kDown, expert});
  if (m.up_bias) f(Weight{width, 1, copies * (m.gated ? 2 : 1), Kind::kVector, kNever, expert});
  if (m.down_bias) f(Weight{H, 1, copies, Kind::kVector, kNever, expert});
}

/// Every weight of one layer on one rank. Each expert is divided over etp ranks.
template <class F>
void layer_weights(const model::Layer& l, std::uint64_t H, std::uint64_t tp, std::uint64_t ep,
                   std::uint64_t etp, F&& f) {
  attention_weights(l, H, tp, f);
  linear_weights(l.linear, H, tp, f);
  mlp_weights(l.mlp, H, tp, 1, false, f);
  if (l.per_layer_width) {
    f(Weight{l.per_layer_width, H});
    f(Weight{H, l.per_layer_width});
  }
  if (const model::Experts& e = l.experts; e.count) {
    f(Weight{e.count, H});
    if (e.router_bias) f(Weight{e.count, 1, 1, Kind::kVector});
    if (e.latent) {
      f(Weight{e.latent, H});
      f(Weight{H, e.latent});
      if (e.latent_bias) f(Weight{e.latent, 1, 1, Kind::kVector}), f(Weight{H, 1, 1, Kind::kVector});
    }
    mlp_weights(e.each, e.latent ? e.latent : H, etp, up(e.count, ep), true, f);
    mlp_weights(e.shared, H, tp, 1, false, f);
    if (e.shared_gate) f(Weight{1, H, 1, Kind::kVector});
    if (e.router_scale) f(Weight{H, 1, 1, Kind::kVector});
  }
  if (const std::uint64_t n = norm_of(l.norm, H)) f(Weight{n, 1, l.norms, Kind::kVector});
}

/// Rows of the vocabulary on one rank, padded to parallel.vocab_multiple.
inline std::uint64_t vocab_rows(const model::Architecture& a, std::uint64_t tp, std::uint64_t multiple) {
  const std::uint64_t rows = up(a.vocab, tp);
  return multiple <= 1 || rows > kMaxBytes - multiple ? rows : up(rows, multiple) * multiple;
}

inline std::uint64_t embedding_width(const model::Architecture& a) {
  return a.embedding_width ? a.embedding_width : a.hidden;
}

/// Weights before the layers: table, positions, their norm, and a projection if the table is narrower than H.
template <class F>
void embedding_weights(const model::Architecture& a, std::uint64_t rows, F&& f) {
  f(Weight{rows, embedding_width(a), 1, Kind::kEmbedding});
  if (a.learned_positions) f(Weight{a.learned_positions, a.hidden, 1, Kind::kEmbedding});
  if (const std::uint64_t n = norm_of(a.embedding_norm, a.hidden)) f(Weight{n, 1, 1, Kind::kVector});
  if (embedding_width(a) != a.hidden) f(Weight{a.hidden, embedding_width(a)});
  if (a.per_layer_width) {
    const std::uint64_t width = std::uint64_t{a.layer_count()} * a.per_layer_width;
    f(Weight{a.per_layer_vocab, width, 1, Kind::kEmbedding});
    f(Weight{width, a.hidden});
    f(Weight{a.per_layer_width, 1, 1, Kind::kVector});
  }
}

/// Weights after the layers. own_table: the head has its own table on this rank, or a copy of the tied one on
/// another pipeline stage.
template <class F>
void head_weights(const model::Architecture& a, std::uint64_t rows, bool own_table, F&& f) {
  if (const std::uint64_t n = norm_of(a.final_norm, a.hidden)) f(Weight{n, 1, 1, Kind::kVector});
  if (embedding_width(a) != a.hidden) f(Weight{embedding_width(a), a.hidden});
  if (own_table) f(Weight{rows, embedding_width(a), 1, Kind::kEmbedding});
  if (a.head_bias) f(Weight{rows, 1, 1, Kind::kVector});
}

}  // namespace trainhost::parallel
