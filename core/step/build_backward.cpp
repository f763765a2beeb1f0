// The micro section: forward pass, head with loss, then the backward pass in reverse order. Within a layer
// every weight gradient precedes the gradient of the same input, so that the activation's lifetime ends
// before the next gradient is allocated.
#include <cassert>

#include "core/step/builder.hpp"
#include "core/step/scratch_sizes.hpp"

namespace trainhost::step {
namespace {

/// The part of a layer that has a gradient in this run. Below the first adapted matrix of the model nothing
/// is trained, so no gradient is computed.
struct Reach {
  std::int32_t layer = -1;  // -1: down to the embedding
  std::uint32_t group = 0;  // of the first adapted product in that layer
  /// True if something before the product `g` of layer l needs a gradient.
  bool below(std::int32_t l, AdapterGroup g) const {
    return layer < l || (layer == l && group < static_cast<std::uint32_t>(g));
  }
};

Reach reach_of(const Builder& b) {
  if (b.trains_weights()) return {};
  // Every layer has the same adapters.
  const LayerWeights& first = b.weights.layers.front();
  for (std::uint32_t g = 0; g < kAdapterGroups; ++g)
    if (first.adapters[g].present()) return {0, g};
  assert(false && "a run that trains adapters has at least one");
  return {};
}

/// Backward of y = x w^T + b with its adapters: first the gradients of the weights, with the last use of x,
/// then dx = dy w. Returns kNoBuffer if nothing before the product needs dx.
BufferId linear_bwd(Builder& b, const Reach& reach, std::int32_t l, AdapterGroup g, BufferId dy, BufferId x,
                    const Weight& w, const Weight& bias, const LayerWeights& layer, const LayerActs& acts,
                    const char* dx_role, std::uint64_t dx_cols) {
  if (w.grad != kNoBuffer) {
    const BufferId partials = b.on_device() && bias.grad != kNoBuffer
                                  ? b.scratch(role::kBiasPartials, l, b.p.traits.slots, b.p[bias.grad].rows)
                                  : kNoBuffer;
    b.op(OpKind::kLinearDw, l, {dy, x, w.grad, bias.grad, partials}, {w.grad, bias.grad}, kFirstWrite);
  }
  const Adapter& adapter = layer.adapter(g);
  BufferId du = kNoBuffer;
  if (adapter.present()) {
    const BufferId u = acts.lora[static_cast<std::size_t>(g)];
    b.op(OpKind::kLoraBDw, l, {dy, u, adapter.b.grad}, {adapter.b.grad}, kFirstWrite);
    du = b.act(role::kDLora[static_cast<std::size_t>(g)], l, b.p[u].cols);
    b.op(OpKind::kLoraBDx, l, {dy, adapter.b.w}, {du});
    b.op(OpKind::kLinearDw, l, {du, x, adapter.a.grad, kNoBuffer, kNoBuffer}, {adapter.a.grad}, kFirstWrite);
  }
  if (!reach.below(l, g)) return kNoBuffer;
  const BufferId dx = b.act(dx_role, l, dx_cols);
  b.op(OpKind::kLinearDx, l, {dy, w.w}, {dx});
  if (du != kNoBuffer) b.op(OpKind::kLinearDxAdd, l, {du, adapter.a.w, dx}, {dx});
  return dx;
}

/// Gradient of the norm's weight, unless it is frozen, and dx: written if `fresh`, else added to the residual
/// gradient.
void norm_bwd(Builder& b, std::int32_t l, BufferId dy, BufferId x, BufferId rstd, const Weight& w,
              BufferId dx, bool fresh, const char* partials_role) {
  const BufferId partials = b.scratch(partials_role, l, b.p.traits.slots, b.p.model.hidden);
  b.op(OpKind::kRmsNormBwd, l, {dy, x, rstd, w.w, fresh ? kNoBuffer : dx, w.grad, partials}, {dx, w.grad},
       kFirstWrite | (fresh ? kFreshDx : 0u));
}

/// Returns false if nothing before it needs a gradient.
bool mlp_bwd(Builder& b, const Reach& reach, std::int32_t l, const LayerWeights& w, const LayerActs& a,
             BufferId dx) {
  const ModelSpec& m = b.p.model;
  const BufferId d_act = linear_bwd(b, reach, l, AdapterGroup::kDown, dx, a.act, w.down, w.down_bias, w, a,
                                    role::kDAct, m.intermediate);
  if (d_act == kNoBuffer) return false;
  b.op(OpKind::kSwiGluBwd, l, {d_act, a.gate_up}, {a.gate_up});  // gate_up holds its gradient from here on
  const BufferId d_h2 = linear_bwd(b, reach, l, AdapterGroup::kGateUp, a.gate_up, a.h2, w.gate_up,
                                   w.gate_up_bias, w, a, role::kDH2, m.hidden);
  if (d_h2 == kNoBuffer) return false;
  norm_bwd(b, l, d_h2, a.x_mid, a.rstd2, w.norm2, dx, false, role::kNorm2Partials);
  return true;
}

/// Returns false if nothing before it needs a gradient.
bool attention_bwd(Builder& b, const Reach& reach, std::int32_t l, const LayerWeights& w, const LayerActs& a,
                   BufferId dx) {
  const ModelSpec& m = b.p.model;
  const BufferId d_out = linear_bwd(b, reach, l, AdapterGroup::kO, dx, a.attn_out, w.o, w.o_bias, w, a,
                                    role::kDAttnOut, m.q_width());
  if (d_out == kNoBuffer) return false;
  const BufferId d_qkv = b.act(role::kDQkv, l, m.qkv_width());
  const BufferId scratch = b.on_device() ? b.scratch(role::kAttnBwdScratch, l, b.rows, m.heads)
                                         : b.scratch(role::kAttnBwdScratch, l, b.p.traits.threads,
                                                     attention_scratch_floats(b.p.traits, m.head_dim));
  b.op(OpKind::kAttentionBwd, l, {d_out, a.attn_out, a.lse, a.qkv, scratch}, {d_qkv});
  b.op(OpKind::kRopeBwd, l, {d_qkv, b.rope_table}, {d_qkv});
  if (m.qk_norm) {
    const BufferId partials =
        b.scratch(role::kQkPartials, l, b.p.traits.slots, 2 * std::uint64_t{m.head_dim});
    b.op(OpKind::kQkNormBwd, l,
         {d_qkv, a.qk_pre, a.qk_rstd, w.q_norm.w, w.k_norm.w, w.q_norm.grad, w.k_norm.grad, partials},
         {d_qkv, w.q_norm.grad, w.k_norm.grad}, kFirstWrite);
  }
  const BufferId d_h1 =
      linear_bwd(b, reach, l, AdapterGroup::kQkv, d_qkv, a.h1, w.qkv, w.qkv_bias, w, a, role::kDH1, m.hidden);
  if (d_h1 == kNoBuffer) return false;
  norm_bwd(b, l, d_h1, a.x, a.rstd1, w.norm1, dx, false, role::kNorm1Partials);
  return true;
}

/// Loss and gradients of the head, a chunk of tokens at a time; hf becomes d hf.
void head(Builder& b, const ForwardActs& f) {
  const Weight& w = b.weights.head;
  const HeadScratch s = head_scratch(b);
  b.op(OpKind::kHeadLoss, -1, {f.hf, w.w, b.targets, w.grad, s.logits, b.scalars, s.losses},
       {f.hf, w.grad, b.scalars}, kFirstWrite);
}

}  // namespace

void build_micro(Builder& b) {
  b.begin(SectionKind::kMicro, kForward, kOriginal, b.tokens());
  const ForwardActs f = build_forward(b);
  b.phase = kBackward;
  head(b, f);
  const BufferId dx = b.act(role::kDx, -1, b.p.model.hidden);
  norm_bwd(b, -1, f.hf, f.x_out, f.rstd_f, b.weights.final_norm, dx, true, role::kFinalPartials);
  const Reach reach = reach_of(b);
  for (std::uint32_t l = b.p.model.layers; l-- > 0;) {
    const auto at = static_cast<std::int32_t>(l);
    if (!mlp_bwd(b, reach, at, b.weights.layers[l], f.layers[l], dx) ||
        !attention_bwd(b, reach, at, b.weights.layers[l], f.layers[l], dx))
      break;  // the first layer, below its first adapter
  }
  // With tied embeddings the head has already made the first write to the table's gradient.
  if (b.weights.embed.grad != kNoBuffer)
    b.op(OpKind::kEmbedBwd, -1, {dx, b.ids, b.weights.embed.grad, b.order}, {b.weights.embed.grad},
         b.p.model.tied ? 0u : static_cast<std::uint32_t>(kFirstWrite));
  b.end();
}

}  // namespace trainhost::step
