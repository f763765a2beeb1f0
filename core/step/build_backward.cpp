// The micro section: forward pass, head with loss, then the backward pass in reverse order. Within a layer
// every weight gradient precedes the gradient of the same input, so that the activation's lifetime ends
// before the next gradient is allocated.
#include <algorithm>
#include <cassert>
#include <optional>

#include "core/step/builder.hpp"
#include "core/step/scratch_sizes.hpp"

namespace trainhost::step {
namespace {

/// The parts of a layer with parameters, in the order of the forward pass.
enum class Stage : std::uint32_t { kNorm1, kQkv, kQkNorm, kO, kNorm2, kGateUp, kDown };

Stage stage_of(AdapterGroup g) {
  constexpr Stage kStages[] = {Stage::kQkv, Stage::kO, Stage::kGateUp, Stage::kDown};
  return kStages[static_cast<std::size_t>(g)];
}

/// How far down the run needs gradients: to the first part of the forward pass that is trained. Below it no
/// gradient is computed.
struct Reach {
  std::int32_t layer = -1;  // -1: down to the embedding; the number of layers: the final norm or the head
  Stage stage{};            // in that layer
  /// True if something before this part of layer l is trained.
  bool below(std::int32_t l, Stage part) const { return layer < l || (layer == l && stage < part); }
  bool below(std::int32_t l, AdapterGroup g) const { return below(l, stage_of(g)); }
  /// True if the layer or something before it is trained.
  bool contains(std::int32_t l) const { return layer <= l; }
};

/// The first part of the layer with a gradient; nullopt if it is frozen.
std::optional<Stage> first_trained(const LayerWeights& w) {
  const auto any = [](std::initializer_list<Weight> weights) {
    return std::any_of(weights.begin(), weights.end(), [](const Weight& x) { return x.grad != kNoBuffer; });
  };
  const auto adapted = [&](AdapterGroup g) { return w.adapter(g).present(); };
  if (any({w.norm1})) return Stage::kNorm1;
  if (any({w.qkv, w.qkv_bias}) || adapted(AdapterGroup::kQkv)) return Stage::kQkv;
  if (any({w.q_norm, w.k_norm})) return Stage::kQkNorm;
  if (any({w.o, w.o_bias}) || adapted(AdapterGroup::kO)) return Stage::kO;
  if (any({w.norm2})) return Stage::kNorm2;
  if (any({w.gate_up, w.gate_up_bias}) || adapted(AdapterGroup::kGateUp)) return Stage::kGateUp;
  if (any({w.down, w.down_bias}) || adapted(AdapterGroup::kDown)) return Stage::kDown;
  return std::nullopt;
}

Reach reach_of(const Builder& b) {
  if (b.weights.embed.grad != kNoBuffer || b.weights.embed_adapter.present()) return {};
  std::int32_t l = 0;
  for (const LayerWeights& w : b.weights.layers) {
    if (const std::optional<Stage> stage = first_trained(w)) return {l, *stage};
    ++l;
  }
  // The final norm is the first part after the layers, the head the second one.
  const bool norm = b.weights.final_norm.grad != kNoBuffer;
  assert((norm || b.weights.head.grad != kNoBuffer || b.weights.head_adapter.present()) &&
         "a run trains at least one parameter");
  return {norm ? l : l + 1, {}};
}

/// du = scale * dy B of the adapters of a product; kNoBuffer without.
BufferId adapter_dx(Builder& b, std::int32_t l, AdapterGroup g, BufferId dy, const LayerWeights& layer,
                    const LayerActs& acts) {
  const Adapter& adapter = layer.adapter(g);
  const auto group = static_cast<std::size_t>(g);
  if (!adapter.present()) return kNoBuffer;
  const BufferId du = b.act(role::kDLora[group], l, b.p[acts.lora[group]].cols);
  b.op(OpKind::kLoraBDx, l, {dy, adapter.b.w}, {du});
  return du;
}

/// The gradients that the output of a product has.
struct OutputGradient {
  BufferId dy;                     // of the output
  BufferId d_sum;                  // of the sum of product and adapters: dy, with DoRA times the factors
  BufferId d_product = kNoBuffer;  // of the product of the dropped input, which only DoRA has
};

/// dx = dy w and the part of the adapters, where du is their inner gradient or kNoBuffer.
void input_gradient(Builder& b, std::int32_t l, std::size_t group, const OutputGradient& d, BufferId du,
                    const Weight& w, const Adapter& adapter, BufferId dx) {
  const BufferId matrix = b.matrix(w, l, role::kDequantizedBwd[group]);
  b.op(OpKind::kLinearDx, l, {b.drops() ? d.dy : d.d_sum, matrix}, {dx});
  if (du == kNoBuffer) return;
  if (!b.drops()) return b.op(OpKind::kLinearDxAdd, l, {du, adapter.a.w, dx}, {dx});
  const BufferId dropped = b.act(role::kDDropped[group], l, b.p[dx].cols);
  if (d.d_product != kNoBuffer) {
    b.op(OpKind::kLinearDx, l, {d.d_product, matrix}, {dropped});
    b.op(OpKind::kLinearDxAdd, l, {du, adapter.a.w, dropped}, {dropped});
  } else {
    b.op(OpKind::kLinearDx, l, {du, adapter.a.w}, {dropped});
  }
  b.op(OpKind::kDropoutAdd, l, {dropped, dx, b.micro_batch}, {dx});
}

/// Of a product whose outputs TP ranks divide: starts the sum of dx before the gradients of the weights are
/// computed, during which it travels.
struct TensorSum {
  BufferId dx = kNoBuffer;  // none for other products, and if nothing before the product needs dx
  BufferId du = kNoBuffer;  // of its adapters
};
TensorSum tensor_sum_bwd(Builder& b, const Reach& reach, std::int32_t l, AdapterGroup g,
                         const OutputGradient& d, const Weight& w, const LayerWeights& layer,
                         const LayerActs& acts, const char* dx_role, std::uint64_t dx_cols) {
  if (!b.has_tensor_ranks() || has_divided_inputs(g) || !reach.below(l, g)) return {};
  const BufferId du = adapter_dx(b, l, g, d.d_sum, layer, acts);
  const char* const sum_role = g == AdapterGroup::kQkv ? role::kDH1Sum : role::kDH2Sum;
  const BufferId dx = b.divides_rows() ? add_all_rows(b, sum_role, l) : b.act(dx_role, l, dx_cols);
  input_gradient(b, l, static_cast<std::size_t>(g), d, du, w, layer.adapter(g), dx);
  start_tensor_sum(b, l, dx);
  return {dx, du};
}

/// dx of the sum that tensor_sum_bwd() has started.
BufferId end_tensor_sum_bwd(Builder& b, std::int32_t l, BufferId sum, const char* dx_role,
                            std::uint64_t dx_cols) {
  if (!b.divides_rows()) return wait_for_tensor_ranks(b, l, sum), sum;
  const BufferId dx = b.own_act(dx_role, l, dx_cols);
  take_rows_of_sum(b, l, sum, kNoBuffer, dx);
  return dx;
}

/// Backward of y = x w^T + b with its adapters: first the gradients of the weights, with the last use of x,
/// then dx = dy w. Returns kNoBuffer if nothing before the product needs dx.
BufferId linear_bwd(Builder& b, const Reach& reach, std::int32_t l, AdapterGroup g, BufferId dy, BufferId x,
                    const Weight& w, const Weight& bias, const LayerWeights& layer, const LayerActs& acts,
                    const char* dx_role, std::uint64_t dx_cols) {
  const Adapter& adapter = layer.adapter(g);
  const auto group = static_cast<std::size_t>(g);
  OutputGradient d{dy, dy};
  if (adapter.magnitude.w != kNoBuffer) {
    d.d_sum = acts.unscaled[group];
    const BufferId grad = adapter.magnitude.grad;
    if (b.drops()) d.d_product = b.act(role::kDUnscaled[group], l, b.p[dy].cols);
    b.op(OpKind::kDoraBwd, l, {dy, d.d_sum, acts.dora_scale[group], grad}, {d.d_sum, grad, d.d_product},
         kFirstWrite);
  }
  const TensorSum sum = tensor_sum_bwd(b, reach, l, g, d, w, layer, acts, dx_role, dx_cols);
  if (w.grad != kNoBuffer) {
    const BufferId partials = b.on_device() && bias.grad != kNoBuffer
                                  ? b.scratch(role::kBiasPartials, l, b.p.traits.slots, b.p[bias.grad].rows)
                                  : kNoBuffer;
    b.op(OpKind::kLinearDw, l, {dy, x, w.grad, bias.grad, partials}, {w.grad, bias.grad}, kFirstWrite);
  }
  BufferId du = sum.du;
  if (adapter.present()) {
    const BufferId u = acts.lora[group];
    b.op(OpKind::kLoraBDw, l, {d.d_sum, u, adapter.b.grad}, {adapter.b.grad}, kFirstWrite);
    if (du == kNoBuffer) du = adapter_dx(b, l, g, d.d_sum, layer, acts);
    const BufferId input = acts.lora_input[group];
    b.op(OpKind::kLinearDw, l, {du, input, adapter.a.grad, kNoBuffer, kNoBuffer}, {adapter.a.grad},
         kFirstWrite);
  }
  if (sum.dx != kNoBuffer) return end_tensor_sum_bwd(b, l, sum.dx, dx_role, dx_cols);
  if (!reach.below(l, g)) return kNoBuffer;
  const BufferId dx = b.act(dx_role, l, dx_cols);
  input_gradient(b, l, group, d, du, w, adapter, dx);
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
  const BufferId dy = gather_rows(b, l, dx, role::kDxDown);
  const BufferId d_act = linear_bwd(b, reach, l, AdapterGroup::kDown, dy, a.act, w.down, w.down_bias, w, a,
                                    role::kDAct, m.intermediate);
  if (d_act == kNoBuffer) return false;
  b.op(OpKind::kSwiGluBwd, l, {d_act, a.gate_up}, {a.gate_up});  // gate_up holds its gradient from here on
  const BufferId d_h2 = linear_bwd(b, reach, l, AdapterGroup::kGateUp, a.gate_up, a.h2, w.gate_up,
                                   w.gate_up_bias, w, a, role::kDH2, m.hidden);
  if (d_h2 == kNoBuffer) return false;
  norm_bwd(b, l, d_h2, a.x_mid, a.rstd2, w.norm2, dx, false, role::kNorm2Partials);
  return reach.below(l, Stage::kNorm2);
}

/// Returns false if nothing before it needs a gradient.
bool attention_bwd(Builder& b, const Reach& reach, std::int32_t l, const LayerWeights& w, const LayerActs& a,
                   BufferId dx) {
  const ModelSpec& m = b.p.model;
  const BufferId dy = gather_rows(b, l, dx, role::kDxO);
  const BufferId d_out = linear_bwd(b, reach, l, AdapterGroup::kO, dy, a.attn_out, w.o, w.o_bias, w, a,
                                    role::kDAttnOut, m.q_width());
  if (d_out == kNoBuffer) return false;
  const BufferId d_qkv = b.act(role::kDQkv, l, m.qkv_width());
  const BufferId scratch = b.on_device() ? b.scratch(role::kAttnBwdScratch, l, b.rows, m.heads)
                                         : b.scratch(role::kAttnBwdScratch, l, b.p.traits.threads,
                                                     attention_scratch_floats(b.p.traits, m.head_dim));
  b.op(OpKind::kAttentionBwd, l, {d_out, a.attn_out, a.lse, a.qkv, scratch, b.starts}, {d_qkv});
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

/// The gradient of A of the head's adapter and, if `below`, its part of d hf. The head has overwritten the
/// input of A, which is recomputed from x_out: that costs less memory than a copy while the logits are
/// live.
void adapter_of_head_bwd(Builder& b, const ForwardActs& f, bool below) {
  const BufferId a = f.head_a;
  const std::uint32_t copy = b.copy;
  b.copy = kRecomputedCopy;
  const BufferId hf = b.own_act(role::kHf, -1, b.p.model.hidden), rstd = b.own_stat(role::kRstdF, -1);
  b.op(OpKind::kRmsNorm, -1, {f.x_out, b.weights.final_norm.w}, {hf, rstd}, kRecomputed);
  const BufferId input = dropped_input_of_head(b, gather_rows(b, -1, hf, role::kHfAll));
  b.copy = copy;
  const BufferId grad = b.weights.head_adapter.a.grad, tied_grad = b.weights.embed_adapter.b.grad;
  if (ties_adapter(b.p.run))  // of the transpose
    b.op(OpKind::kLinearDw, -1, {input, f.head_lora, tied_grad, kNoBuffer, kNoBuffer}, {tied_grad},
         kFirstWrite);
  else
    b.op(OpKind::kLinearDw, -1, {f.head_lora, input, grad, kNoBuffer, kNoBuffer}, {grad}, kFirstWrite);
  if (!below) return;
  if (!b.drops()) return b.op(OpKind::kLinearDxAdd, -1, {f.head_lora, a, f.hf}, {f.hf});
  BufferId dropped = f.head_dropped;
  if (dropped != kNoBuffer) {  // with DoRA: it has the gradient of the product of the dropped input
    b.op(OpKind::kLinearDxAdd, -1, {f.head_lora, a, dropped}, {dropped});
  } else {
    dropped = b.act(role::kDHeadDropped, -1, b.p.model.hidden);
    b.op(OpKind::kLinearDx, -1, {f.head_lora, a}, {dropped});
  }
  b.op(OpKind::kDropoutAdd, -1, {dropped, f.hf, b.micro_batch}, {f.hf});
}

/// The gradients of the adapter of the embedding, from that of its output, of all rows. A TP rank has the
/// gradient of its rows of A whole, and of B a part of the sum.
void adapter_of_embedding_bwd(Builder& b, const ForwardActs& f, BufferId dx) {
  const Adapter& adapter = b.weights.embed_adapter;
  if (f.embed_unscaled != kNoBuffer) {
    const BufferId grad = adapter.magnitude.grad;
    b.op(OpKind::kDoraBwd, -1, {dx, f.embed_unscaled, f.embed_scale, grad}, {f.embed_unscaled, grad},
         kFirstWrite);
    dx = f.embed_unscaled;
  }
  // The head has made the first writes to the gradients of an adapter that both have.
  const std::uint32_t flags = ties_adapter(b.p.run) ? 0u : static_cast<std::uint32_t>(kFirstWrite);
  b.op(OpKind::kLoraBDw, -1, {dx, f.embed_lora, adapter.b.grad}, {adapter.b.grad}, flags);
  const BufferId du =
      b.act(role::kDLora[static_cast<std::size_t>(AdapterGroup::kEmbed)], -1, b.p[f.embed_lora].cols);
  b.op(OpKind::kLoraBDx, -1, {dx, adapter.b.w}, {du});
  b.op(OpKind::kEmbedBwd, -1, {du, b.ids, adapter.a.grad, b.order}, {adapter.a.grad}, flags);
}

void reduce_gradients_of(Builder& b, const Adapter& adapter) {
  for (const Weight* w : {&adapter.a, &adapter.b, &adapter.magnitude}) reduce_gradient(b, w->grad);
}

/// Loss and gradients of the head, a chunk of tokens at a time; hf becomes d hf. Returns d hf between the
/// products. `below`: whether something before the head is trained.
BufferId head(Builder& b, const ForwardActs& f, bool below) {
  const Weight& w = b.weights.head;
  const Weight& lora_b = b.weights.head_adapter.b;
  const BufferId grad_m = b.weights.head_adapter.magnitude.grad;
  const HeadScratch s = head_scratch(b, f);
  b.op(OpKind::kHeadLoss, -1,
       {f.hf, w.w, b.targets, w.grad, s.logits, b.scalars, s.losses, s.stats, f.head_lora, lora_b.w,
        lora_b.grad, f.head_scale, s.unscaled, grad_m, f.head_dropped},
       {f.hf, w.grad, b.scalars, f.head_lora, lora_b.grad, grad_m, f.head_dropped}, kFirstWrite);
  if (b.weights.head_adapter.present()) adapter_of_head_bwd(b, f, below);
  if (!below) return f.hf;  // nothing reads d hf
  start_tensor_sum(b, -1, f.hf);
  return end_tensor_sum_bwd(b, -1, f.hf, role::kDHf, b.p.model.hidden);
}

}  // namespace

void build_micro(Builder& b) {
  b.begin(SectionKind::kMicro, kForward, kOriginal, b.tokens());
  sum_scalars_of_ranks(b);
  const ForwardActs f = build_forward(b);
  b.phase = kBackward;
  const Reach reach = reach_of(b);
  const auto layers = static_cast<std::int32_t>(b.p.model.layers);
  const BufferId d_hf = head(b, f, reach.contains(layers));
  if (!b.p.model.tied) reduce_gradient(b, b.weights.head.grad);
  if (ties_adapter(b.p.run))
    reduce_gradient(b, b.weights.head_adapter.magnitude.grad);
  else
    reduce_gradients_of(b, b.weights.head_adapter);
  if (!reach.contains(layers)) return b.end();  // the head alone is trained
  const BufferId dx = b.own_act(role::kDx, -1, b.p.model.hidden);
  norm_bwd(b, -1, d_hf, f.x_out, f.rstd_f, b.weights.final_norm, dx, true, role::kFinalPartials);
  reduce_gradient(b, b.weights.final_norm.grad);
  for (std::int32_t at = layers - 1; at >= 0 && reach.contains(at); --at) {
    const auto l = static_cast<std::size_t>(at);
    const bool below = mlp_bwd(b, reach, at, b.weights.layers[l], f.layers[l], dx) &&
                       attention_bwd(b, reach, at, b.weights.layers[l], f.layers[l], dx);
    reduce_gradients(b, at);
    if (!below) break;  // the first layer that is trained, before its first trained part
  }
  // With tied embeddings the head has already made the first write to the table's gradient.
  if (b.weights.embed.grad != kNoBuffer)
    b.op(OpKind::kEmbedBwd, -1,
         {gather_rows(b, -1, dx, role::kDxEmbed), b.ids, b.weights.embed.grad, b.order},
         {b.weights.embed.grad}, b.p.model.tied ? 0u : static_cast<std::uint32_t>(kFirstWrite));
  reduce_gradient(b, b.weights.embed.grad);
  if (b.weights.embed_adapter.present())
    adapter_of_embedding_bwd(b, f, gather_rows(b, -1, dx, role::kDxEmbed));
  reduce_gradients_of(b, b.weights.embed_adapter);
  b.end();
}

}  // namespace trainhost::step
