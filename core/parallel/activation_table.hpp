// The table of activations: every tensor that a usual implementation keeps of one layer from its forward to
// its backward pass, for one micro-batch on one rank, with the recompute policies under which it is kept and
// how it is cut. A usual implementation: each product keeps its input, each norm its input and output,
// attention q, k, v and its output; biases, residual sums and rotary turns keep nothing of their own. Never
// allocates; knows no pipeline (pipeline_schedule.hpp).
#pragma once
#include "core/model/run_spec.hpp"
#include "core/parallel/rank_weights.hpp"

namespace trainhost::parallel {

/// How much of a layer is kept: everything; without what selective makes again (norm outputs, the product
/// behind the activation, materialised scores); without gate and up as well; its input alone.
enum Policy : std::uint8_t { kAll = 0, kLight, kLighter, kInput };
inline constexpr std::size_t kPolicies = 4;

/// Tokens of a micro-batch on one rank: whole inside the tensor-parallel parts, part between them. Context
/// parallelism cuts both; tensor parallelism cuts `part` where the run is sequence-parallel.
struct Tokens {
  Size whole, part;
  std::uint64_t keys = 0;  // of a query: the sequence
};

struct Activation {
  const char* name;
  Size tokens, width;  // width on this rank
  std::uint32_t size;  // bytes an element
  Policy until;        // the last policy that keeps it
  Size bytes() const { return tokens * width * size; }
};

struct Cut {
  Tokens tokens;
  std::uint64_t H = 0, tp = 1;
  std::uint32_t size = 4;  // of an element in the compute type
  bool materialised = false;
  std::uint32_t needed =
      ~0u;  // bits of Target: matrices whose input is kept, because they or their adapter are trained
  std::uint64_t inner = 0;  // ranks of all adapters of a layer: what their first halves give
  bool needs(std::uint32_t targets) const { return needed & targets; }
};
inline constexpr std::uint32_t kReadAttentionNorm = 1u << kQ | 1u << kK | 1u << kV,
                               kReadMlpNorm = 1u << kGate | 1u << kUp, kReadProduct = 1u << kDown;

template <class F>
void attention_activations(const model::Layer& l, const Cut& c, F&& f) {
  const model::Attention& a = l.attention;
  const Widths w = widths(a, c.tp);
  const Tokens& t = c.tokens;
  const std::uint32_t stats =
      l.norm == model::NormKind::kRms ? 1 : 2;  // f32 a token: 1/rms, or mean and 1/deviation
  f(Activation{"attention norm, input", t.part, c.H, c.size, kInput});
  f(Activation{"attention norm, statistics", t.part, stats, 4, kLighter});
  if (c.needs(kReadAttentionNorm)) f(Activation{"attention norm, output", t.part, c.H, c.size, kAll});
  if (a.latent) {
    if (a.q_lora_rank) {
      f(Activation{"q latent", t.part, a.q_lora_rank, c.size, kLighter});
      f(Activation{"q latent, normed", t.part, a.q_lora_rank, c.size, kAll});
    }
    f(Activation{"kv latent", t.part, Size(a.kv_lora_rank) + a.rope_head_dim, c.size, kLighter});
    f(Activation{"kv latent, normed", t.part, a.kv_lora_rank, c.size, kAll});
  }
  if (a.qk_norm != model::NormKind::kNone)
    f(Activation{"q and k before their norms", t.whole, Size(w.q) + w.k, c.size, kLighter});
  f(Activation{"q", t.whole, w.q, c.size, a.qk_norm != model::NormKind::kNone ? kAll : kLighter});
  f(Activation{"k", t.whole, w.k, c.size, a.qk_norm != model::NormKind::kNone ? kAll : kLighter});
  f(Activation{"v", t.whole, w.v, c.size, kLighter});
  if (c.materialised) {
    f(Activation{"scores", t.whole, Size(w.heads) * t.keys, c.size, kAll});
    f(Activation{"softmax of scores", t.whole, Size(w.heads) * t.keys, c.size, kAll});
  } else {
    f(Activation{"softmax statistics", t.whole, w.heads, 4, kLighter});
  }
  f(Activation{"attention output", t.whole, w.out, c.size, kLighter});
  if (l.norms >= 4) f(Activation{"norm behind attention, input", t.part, c.H, c.size, kLighter});
}

/// One MLP of local width I over `tokens` rows. The product (activation applied, times up) is what the down
/// projection reads.
template <class F>
void mlp_activations(const model::Mlp& m, const Cut& c, Size tokens, const char* gate, const char* product,
                     F&& f) {
  if (!m.width) return;
  const std::uint64_t width = up(m.width, c.tp);
  f(Activation{gate, tokens, Size(width) * (m.gated ? 2 : 1), c.size, kLight});
  if (c.needs(kReadProduct)) f(Activation{product, tokens, width, c.size, kAll});
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
  mlp_activations(l.mlp, c, t.whole, l.mlp.gated ? "gate and up" : "up", "activation product", f);
  if (const model::Experts& e = l.experts; e.count) {
    // Every rank is taken to receive an even share: its own tokens, `active` times.
    const Size routed = t.whole * e.active;
    f(Activation{"router scores and probabilities", t.part, Size(e.count) * 2, 4, kLighter});
    if (c.needs(kReadMlpNorm)) f(Activation{"tokens sent to experts", routed, c.H, c.size, kLighter});
    mlp_activations(e.each, c, routed, "experts' gate and up", "experts' product", f);
    f(Activation{"experts' output", routed, c.H, c.size, kLight});
    mlp_activations(e.shared, c, t.whole, "shared expert's gate and up", "shared expert's product", f);
  }
  if (l.norms >= 4) f(Activation{"norm behind the MLP, input", t.part, c.H, c.size, kLighter});
  if (c.inner) f(Activation{"adapters, first halves", t.whole, c.inner, c.size, kLighter});
}

/// Gradients alive at once inside one layer's backward pass, beside what is kept: of gate and up with the
/// hidden gradient, or of q, k, v and the attention output, whichever is more.
inline Size backward_bytes(const model::Layer& l, const Cut& c) {
  const Widths w = widths(l.attention, c.tp);
  const Tokens& t = c.tokens;
  const auto mlp = [&](const model::Mlp& m, Size tokens) {
    return m.width ? tokens * (Size(up(m.width, c.tp)) * (m.gated ? 2 : 1)) + tokens * c.H : Size();
  };
  Size inside = t.whole * (Size(w.q) + w.k + w.v + w.out);
  if (c.materialised) inside += t.whole * (Size(w.heads) * t.keys);
  inside = std::max(inside, mlp(l.mlp, t.whole));
  if (l.experts.count)
    inside =
        std::max(inside, mlp(l.experts.each, t.whole * l.experts.active) + mlp(l.experts.shared, t.whole));
  return inside * c.size;
}

}  // namespace trainhost::parallel
