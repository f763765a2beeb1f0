// The forward pass: embedding, layers, final norm; and the sections eval and generate. Training, evaluation
// and generation share one builder; they differ in the number of rows, in the copy of their buffers, and in
// whether attention reads keys and values from qkv or from the caches.
#include "core/step/builder.hpp"

#include <cassert>
#include "core/step/scratch_sizes.hpp"

namespace trainhost::step {
namespace {

/// y = norm(x); rstd = 1/rms per row, kept for the backward pass.
void norm(Builder& b, std::int32_t l, BufferId x, const Weight& w, BufferId y, BufferId rstd) {
  b.op(OpKind::kRmsNorm, l, {x, w.w}, {y, rstd});
}

/// y = x W^T + bias + residual, in one operation, so that the sum needs no buffer of its own.
void linear(Builder& b, std::int32_t l, AdapterGroup g, BufferId x, const Weight& w, const Weight& bias,
            BufferId residual, BufferId y) {
  const BufferId matrix = b.matrix(w, l, role::kDequantised[static_cast<std::size_t>(g)]);
  b.op(OpKind::kLinear, l, {x, matrix, bias.w, residual}, {y});
}

/// y += scale * (x A^T) B^T for the adapted matrices of a product. u = x A^T is kept for the gradient of B.
void adapters(Builder& b, std::int32_t l, AdapterGroup g, const LayerWeights& w, BufferId x, BufferId y,
              LayerActs& a) {
  const Adapter& adapter = w.adapter(g);
  if (!adapter.present()) return;
  BufferId &u = a.lora[static_cast<std::size_t>(g)], &input = a.lora_input[static_cast<std::size_t>(g)];
  input = x;
  if (b.drops()) {
    // Not kept: recompute policies drop it always, and the backward pass computes it again from x.
    input = b.act(role::kDropped[static_cast<std::size_t>(g)], l, b.p[x].cols);
    b.op(OpKind::kDropout, l, {x, b.micro_batch}, {input});
  }
  u = b.act(role::kLora[static_cast<std::size_t>(g)], l, b.p[adapter.a.w].rows);
  b.op(OpKind::kLinear, l, {input, adapter.a.w, kNoBuffer, kNoBuffer}, {u});
  b.op(OpKind::kLoraB, l, {u, adapter.b.w, y}, {y});
}

/// Training and evaluation compute attention over whole sequences and keep lse [M, A]; generation appends one
/// token to the caches and needs no backward pass.
void attention(Builder& b, std::int32_t l, LayerActs& a) {
  const ModelSpec& m = b.p.model;
  a.attn_out = b.act(role::kAttnOut, l, m.q_width());
  if (b.phase != kGenerate) {
    a.lse = b.stat(role::kLse, l, m.heads);
    const BufferId scratch =
        b.on_device() ? kNoBuffer  // device kernels keep score tiles in registers and shared memory
                      : b.scratch(role::kAttnScratch, l, b.p.traits.threads,
                                  attention_scratch_floats(b.p.traits, m.head_dim));
    b.op(OpKind::kAttention, l, {a.qkv, scratch, b.starts}, {a.attn_out, a.lse});
    return;
  }
  const std::uint64_t positions = b.p.run.seq_len;
  const BufferId k = b.add(role::kCacheK, l, Component::kKvCache, positions, m.kv_width(), b.storage_type());
  const BufferId v = b.add(role::kCacheV, l, Component::kKvCache, positions, m.kv_width(), b.storage_type());
  const BufferId scratch = b.scratch(role::kAttnScratch, l, m.heads, positions);
  b.op(OpKind::kAttentionStep, l, {a.qkv, k, v, scratch}, {a.attn_out, k, v});
}

/// Appends layer l with input a.x; returns the input of the next layer, which has the next layer's name.
/// Buffers are added in the order in which they are written; recompute policies and placement identify them
/// by role.
BufferId layer(Builder& b, std::int32_t l, const LayerWeights& w, LayerActs& a) {
  const ModelSpec& m = b.p.model;
  a.h1 = b.act(role::kH1, l, m.hidden);
  a.rstd1 = b.stat(role::kRstd1, l, 1);
  norm(b, l, a.x, w.norm1, a.h1, a.rstd1);
  a.qkv = b.act(role::kQkv, l, m.qkv_width());
  linear(b, l, AdapterGroup::kQkv, a.h1, w.qkv, w.qkv_bias, kNoBuffer, a.qkv);
  adapters(b, l, AdapterGroup::kQkv, w, a.h1, a.qkv, a);
  if (m.qk_norm) {
    a.qk_pre = b.act(role::kQkPre, l, m.q_width() + m.kv_width());
    a.qk_rstd = b.stat(role::kQkRstd, l, std::uint64_t{m.heads} + m.kv_heads);
    b.op(OpKind::kQkNorm, l, {a.qkv, w.q_norm.w, w.k_norm.w}, {a.qkv, a.qk_pre, a.qk_rstd});
  }
  // In place: qkv before the rotation is not needed again, since the backward pass rotates the gradient back.
  b.op(OpKind::kRope, l, {a.qkv, b.rope_table}, {a.qkv});
  attention(b, l, a);
  a.x_mid = b.act(role::kXMid, l, m.hidden);
  linear(b, l, AdapterGroup::kO, a.attn_out, w.o, w.o_bias, a.x, a.x_mid);
  adapters(b, l, AdapterGroup::kO, w, a.attn_out, a.x_mid, a);

  a.h2 = b.act(role::kH2, l, m.hidden);
  a.rstd2 = b.stat(role::kRstd2, l, 1);
  norm(b, l, a.x_mid, w.norm2, a.h2, a.rstd2);
  a.gate_up = b.act(role::kGateUp, l, 2 * std::uint64_t{m.intermediate});
  linear(b, l, AdapterGroup::kGateUp, a.h2, w.gate_up, w.gate_up_bias, kNoBuffer, a.gate_up);
  adapters(b, l, AdapterGroup::kGateUp, w, a.h2, a.gate_up, a);
  a.act = b.act(role::kAct, l, m.intermediate);
  assert(a.x != kNoBuffer && a.x_mid != kNoBuffer);
  b.op(OpKind::kSwiGlu, l, {a.gate_up}, {a.act});
  const bool last = static_cast<std::uint32_t>(l) + 1 == m.layers;
  const BufferId next = last ? b.act(role::kXOut, -1, m.hidden) : b.act(role::kX, l + 1, m.hidden);
  linear(b, l, AdapterGroup::kDown, a.act, w.down, w.down_bias, a.x_mid, next);
  adapters(b, l, AdapterGroup::kDown, w, a.act, next, a);
  return next;
}

}  // namespace

ForwardActs build_forward(Builder& b) {
  const ModelSpec& m = b.p.model;
  ForwardActs f{};
  f.layers.resize(m.layers);
  BufferId x = b.act(role::kX, 0, m.hidden);
  b.op(OpKind::kEmbed, -1, {b.weights.embed.w, b.phase == kGenerate ? b.token : b.ids}, {x});
  for (std::uint32_t l = 0; l < m.layers; ++l) {
    f.layers[l].x = x;
    x = layer(b, static_cast<std::int32_t>(l), b.weights.layers[l], f.layers[l]);
  }
  f.x_out = x;
  f.hf = b.act(role::kHf, -1, m.hidden);
  f.rstd_f = b.stat(role::kRstdF, -1, 1);
  norm(b, -1, f.x_out, b.weights.final_norm, f.hf, f.rstd_f);
  return f;
}

/// Logits of one chunk of tokens and their losses; docs/memory-model.md, "Activations of one layer".
HeadScratch head_scratch(Builder& b) {
  const std::uint64_t chunk = head_chunk(b.p.traits, b.rows);
  HeadScratch s;
  s.logits = b.add(role::kLogits, -1, Component::kLogits, chunk, b.p.model.vocab, b.storage_type());
  if (b.on_device()) s.losses = b.scratch(role::kLosses, -1, chunk, 1);
  return s;
}

void build_eval(Builder& b) {
  b.begin(SectionKind::kEval, kEval, kOfEval, b.tokens());
  const ForwardActs f = build_forward(b);
  const HeadScratch s = head_scratch(b);
  b.op(OpKind::kHeadEval, -1, {f.hf, b.weights.head.w, b.targets, s.logits, b.scalars, s.losses},
       {b.scalars});
  b.end();
}

void build_generate(Builder& b) {
  b.begin(SectionKind::kGenerate, kGenerate, kOfGenerate, 1);
  const ForwardActs f = build_forward(b);
  const BufferId logits = b.add(role::kLogits, -1, Component::kLogits, 1, b.p.model.vocab, b.storage_type());
  b.op(OpKind::kHeadLogits, -1, {f.hf, b.weights.head.w}, {logits});
  b.end();
}

}  // namespace trainhost::step
