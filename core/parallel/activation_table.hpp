// The table of activations: every tensor of one layer that a typical implementation keeps for the backward
// pass, for one micro-batch on one rank, with the recompute policies that keep it and its split over ranks.
// Assumed: a product keeps its input, a norm its input and output, attention q, k, v and output; biases,
// residual sums and rotary embedding keep nothing. No pipeline (pipeline_schedule.hpp). Does not allocate.
#pragma once
#include <bit>

#include "core/model/run_spec.hpp"
#include "core/parallel/rank_weights.hpp"

namespace trainhost::parallel {

/// Activations kept per layer: all; without those that selective recomputes (norm outputs, MLP product,
/// materialised scores); also without gate and up; only the input.
enum Policy : std::uint8_t { kAll = 0, kLight, kLighter, kInput };
inline constexpr std::size_t kPolicies = 4;

/// Tokens of a micro-batch on one rank: `whole` inside the tensor-parallel parts, `part` between them.
/// Context parallelism divides both; sequence parallelism divides `part` by the TP ranks.
struct Tokens {
  Size whole, part;
  std::uint64_t keys = 0;  // keys per query: the sequence length
};

struct Activation {
  const char* name;
  Size tokens, width;  // width: elements per token on this rank
  std::uint32_t size;  // bytes per element
  Policy until;        // the last policy that keeps it
  Size bytes() const { return tokens * width * size; }
};

struct Cut {
  Tokens tokens;
  std::uint64_t H = 0, tp = 1, etp = 1;  // etp: TP ranks of each expert
  std::uint32_t size = 4;                // bytes per element of the compute type
  bool materialised = false;
  // Bits of Target: matrices whose input is kept, because they or their adapters are trained.
  std::uint32_t needed = ~0u;
  std::uint64_t rank = 0;     // of the adapters: width of the output of each A matrix; 0: no adapters
  bool drops_inputs = false;  // of adapters: each keeps its own input after dropout, and the mask
  std::uint64_t dequantized_experts =
      0;  // of the layer on this rank, whose weights a product makes and keeps
  bool needs(std::uint32_t targets) const { return needed & targets; }
  bool full() const { return needed == ~0u; }  // all weights are trained
  /// Rows of the experts of this rank. Assumes balanced experts: the TP ranks of an expert have its rows
  /// together, so a rank receives `active` times the tokens of these ranks.
  Size routed(Size active) const {
    return etp == tp ? tokens.whole * active : share(tokens.whole * active * etp, tp);
  }
};
inline constexpr std::uint32_t kReadAttentionNorm = 1u << kQ | 1u << kK | 1u << kV,
                               kReadMlpNorm = 1u << kGate | 1u << kUp, kReadProduct = 1u << kDown;

/// As kept by the fused kernels of flash-linear-attention and mamba-ssm, which compute the states of the
/// chunks again in the backward pass. There are no scores of pairs of tokens beyond a chunk.
template <class F>
void linear_activations(const model::LinearAttention& a, const Cut& c, F&& f) {
  const LinearWidths w = widths(a, c.tp);
  const Size tokens = c.tokens.whole;
  // Of LFM2: B * x, the convolution, and C times its result.
  if (a.key_dim == 0) {
    f(Activation{"short convolution, B, C and x", tokens, Size(w.values) * 3, c.size, kLighter});
    f(Activation{"short convolution, input", tokens, w.values, c.size, kLighter});
    f(Activation{"short convolution, output", tokens, w.values, c.size, kLighter});
    if (c.full()) f(Activation{"short convolution, gated output", tokens, w.values, c.size, kAll});
    return;
  }
  f(Activation{"linear attention, q, k and v before the convolution", tokens, w.convolution(), c.size,
               kLighter});
  f(Activation{"linear attention, output gate", tokens, w.values, c.size, kLighter});
  if (a.delta) {
    f(Activation{"linear attention, decay and strength", tokens, Size(a.gates) * w.heads, 4, kLighter});
    if (a.gate_rank) {
      f(Activation{"linear attention, decay of each channel", tokens, w.values, c.size, kLighter});
      f(Activation{"linear attention, inputs of decay and gate", tokens, Size(a.gate_rank) * 2, c.size,
                   kLighter});
    }
    f(Activation{"linear attention, q, k and v", tokens, w.convolution(), c.size, kLighter});
    f(Activation{"linear attention, products within chunks", tokens, Size(w.heads) * a.chunk, c.size,
                 kLighter});
  } else {
    f(Activation{"linear attention, time steps", tokens, Size(a.gates) * w.heads, c.size, kLighter});
  }
  f(Activation{"linear attention, output of the recurrence", tokens, w.values, c.size, kLighter});
  // Mamba's kernel contains the output projection and computes its input again.
  if (a.delta) {
    f(Activation{"linear attention, statistics of the norm", tokens, a.norm_per_head ? w.heads : 1, 4,
                 kLighter});
    if (c.full()) f(Activation{"linear attention, normed output", tokens, w.values, c.size, kAll});
  }
}

template <class F>
void attention_activations(const model::Layer& l, const Cut& c, F&& f) {
  const model::Attention& a = l.attention;
  const Widths w = widths(a, c.tp);
  const Tokens& t = c.tokens;
  // f32 per token: 1/rms, or mean and 1/std.
  const std::uint32_t stats = l.norm == model::NormKind::kRms ? 1 : 2;
  const bool linear = l.linear.value_heads != 0;
  const bool mixes = linear || a.heads != 0;  // else the first norm of the layer is that of its MLP
  f(Activation{mixes ? "attention norm, input" : "MLP norm, input", t.part, c.H, c.size, kInput});
  f(Activation{mixes ? "attention norm, statistics" : "MLP norm, statistics", t.part, stats, 4, kLighter});
  if (linear ? c.full() : c.needs(mixes ? kReadAttentionNorm : kReadMlpNorm))
    f(Activation{mixes ? "attention norm, output" : "MLP norm, output", t.part, c.H, c.size, kAll});
  if (linear) linear_activations(l.linear, c, f);
  if (a.heads == 0) return;
  if (a.latent) {
    if (a.q_lora_rank) {
      f(Activation{"q latent", t.part, a.q_lora_rank, c.size, kLighter});
      f(Activation{"q latent, normed", t.part, a.q_lora_rank, c.size, kAll});
    }
    f(Activation{"kv latent", t.part, Size(a.kv_lora_rank) + a.rope_head_dim, c.size, kLighter});
    f(Activation{"kv latent, normed", t.part, a.kv_lora_rank, c.size, kAll});
  }
  if (a.qk_norm != model::NormKind::kNone)
    f(Activation{"q and k before their norms", t.whole, Size(w.q) + (a.reuses_kv ? 0 : w.k), c.size,
                 kLighter});
  f(Activation{"q", t.whole, w.q, c.size, a.qk_norm != model::NormKind::kNone ? kAll : kLighter});
  if (!a.reuses_kv)
    f(Activation{"k", t.whole, w.k, c.size, a.qk_norm != model::NormKind::kNone ? kAll : kLighter});
  // Layers that reuse k and v of another layer keep a reference to them.
  if (!a.reuses_kv) f(Activation{"v", t.whole, w.v, c.size, kLighter});
  if (a.v_norm && !a.reuses_kv && !a.v_is_k)
    f(Activation{"v before its norm", t.whole, w.v, c.size, kLighter});
  if (c.materialised) {
    f(Activation{"scores", t.whole, Size(w.heads) * t.keys, c.size, kAll});
    f(Activation{"softmax of scores", t.whole, Size(w.heads) * t.keys, c.size, kAll});
  } else {
    f(Activation{"softmax statistics", t.whole, w.heads, 4, kLighter});
  }
  f(Activation{"attention output", t.whole, w.out, c.size, kLighter});
  if (a.gated) {
    f(Activation{"output gate", t.whole, w.out, c.size, kLighter});
    f(Activation{"gated output", t.whole, w.out, c.size, kAll});
  }
  if (l.norms >= 4) f(Activation{"norm after attention, input", t.part, c.H, c.size, kLighter});
}

/// One MLP for `tokens` tokens on one of tp ranks. product: the input of the down projection,
/// activation(gate) * up.
template <class F>
void mlp_activations(const model::Mlp& m, const Cut& c, std::uint64_t tp, Size tokens, const char* gate,
                     const char* product, F&& f) {
  if (!m.width) return;
  const std::uint64_t width = up(m.width, tp);
  f(Activation{gate, tokens, Size(width) * (m.gated ? 2 : 1), c.size, kLight});
  if (c.needs(kReadProduct)) f(Activation{product, tokens, width, c.size, kAll});
}

/// The targets that a layer has: linear attention has none.
inline std::uint32_t targets_of(const model::Layer& l) {
  const model::Attention& a = l.attention;
  std::uint32_t targets = 0;
  if (a.heads) targets |= 1u << kQ | 1u << kO;
  if (a.heads && !a.reuses_kv) targets |= 1u << kK | (a.v_is_k ? 0 : 1u << kV);
  if (l.mlp.width || l.experts.count) {
    const bool gated = l.mlp.width ? l.mlp.gated : l.experts.each.gated;
    targets |= 1u << kUp | 1u << kDown | (gated ? 1u << kGate : 0);
  }
  return targets;
}

/// Elements per token of the inputs of all adapters of a layer; every adapter drops its input anew. Experts
/// count like one MLP.
inline std::uint64_t adapted_inputs(const model::Layer& l, const Cut& c) {
  const auto adapted = [&](std::uint32_t targets) {
    return std::uint64_t(std::popcount(c.needed & targets));
  };
  const std::uint64_t mlp = up(std::max(l.mlp.width, l.experts.each.width), c.tp);
  return adapted(targets_of(l) & (kReadAttentionNorm | kReadMlpNorm)) * c.H +
         adapted(1u << kO) * widths(l.attention, c.tp).out + adapted(kReadProduct) * mlp;
}

template <class F>
void layer_activations(const model::Layer& l, const Cut& c, F&& f) {
  attention_activations(l, c, f);
  const Tokens& t = c.tokens;
  const std::uint32_t stats = l.norm == model::NormKind::kRms ? 1 : 2;
  if (l.norms >= 2) {
    f(Activation{"MLP norm, input", t.part, c.H, c.size, kLighter});
    f(Activation{"MLP norm, statistics", t.part, stats, 4, kLighter});
    if (c.needs(kReadMlpNorm)) f(Activation{"MLP norm, output", t.part, c.H, c.size, kAll});
  }
  mlp_activations(l.mlp, c, c.tp, t.whole, l.mlp.gated ? "gate and up" : "up", "activation product", f);
  if (const model::Experts& e = l.experts; e.count) {
    const Size routed = c.routed(e.active);
    const std::uint64_t into = e.latent ? e.latent : c.H;
    if (e.latent && c.full()) {
      f(Activation{"experts' latent input", t.part, e.latent, c.size, kLighter});
      f(Activation{"experts' latent output", t.part, e.latent, c.size, kLighter});
    }
    // Parameters that are dequantized when they are read: a product keeps the result, not the packed bytes.
    if (c.dequantized_experts)
      f(Activation{"experts, dequantized weights", c.dequantized_experts,
                   Size(up(e.each.width, c.etp)) * into * e.each.matrices(), c.size, kLighter});
    f(Activation{"router scores and probabilities", t.part, Size(e.count) * 2, 4, kLighter});
    if (c.needs(kReadMlpNorm)) f(Activation{"tokens sent to experts", routed, into, c.size, kLighter});
    mlp_activations(e.each, c, c.etp, routed, "experts' gate and up", "experts' product", f);
    f(Activation{"experts' output", routed, into, c.size, kLight});
    mlp_activations(e.shared, c, c.tp, t.whole, "shared expert's gate and up", "shared expert's product", f);
  }
  if (l.norms >= 4) f(Activation{"norm after the MLP, input", t.part, c.H, c.size, kLighter});
  if (l.norms > 4) f(Activation{"further norms, inputs", t.part, Size(l.norms - 4) * c.H, c.size, kLighter});
  // The embedding of this layer, its gate before and after the activation function, their product.
  if (l.per_layer_width)
    f(Activation{"per-layer embedding and gate", t.part, Size(l.per_layer_width) * 4, c.size, kLighter});
  if (c.rank)
    f(Activation{"adapters, output of A", t.whole, c.rank * std::popcount(c.needed & targets_of(l)), c.size,
                 kLighter});
  if (c.drops_inputs)
    f(Activation{"adapters, inputs after dropout and masks", t.whole, adapted_inputs(l, c), c.size + 1,
                 kLighter});
}

/// Peak of the activation gradients inside one layer's backward pass: gate, up and hidden state, or q, k, v
/// and the attention output, whichever is larger.
inline Size backward_bytes(const model::Layer& l, const Cut& c) {
  const Widths w = widths(l.attention, c.tp);
  const Tokens& t = c.tokens;
  const auto mlp = [&](const model::Mlp& m, Size tokens, std::uint64_t tp) {
    return m.width ? tokens * (Size(up(m.width, tp)) * (m.gated ? 2 : 1)) + tokens * c.H : Size();
  };
  Size inside = t.whole * (Size(w.q) * (l.attention.gated ? 2 : 1) + w.k + w.v + w.out);
  if (const model::LinearAttention& a = l.linear; a.value_heads) {
    // Gradients of q, k and v before and after the convolution, of the gate and of the output; the states of
    // all chunks, recomputed.
    const LinearWidths x = widths(a, c.tp);
    const Size states = share(t.whole, std::max(a.chunk, 1u)) * (Size(x.values) * a.key_dim);
    inside = std::max(inside, t.whole * (Size(x.convolution()) * 2 + Size(x.values) * 2) + states);
  }
  if (c.materialised) inside += t.whole * (Size(w.heads) * t.keys);
  inside = std::max(inside, mlp(l.mlp, t.whole, c.tp));
  if (l.experts.count)
    inside = std::max(inside, mlp(l.experts.each, c.routed(l.experts.active), c.etp) +
                                  mlp(l.experts.shared, t.whole, c.tp));
  return inside * c.size;
}

}  // namespace trainhost::parallel
