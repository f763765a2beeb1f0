// The forward pass: embedding, layers, final norm; and the sections eval and generate. Training, evaluation
// and generation share one builder; they differ in the number of rows, in the copy of their buffers, and in
// whether attention reads keys and values from qkv or from the caches.
#include "core/step/builder.hpp"

#include <cassert>
#include "core/step/scratch_sizes.hpp"

namespace trainhost::step {
namespace {

constexpr auto kOfEmbedding = static_cast<std::size_t>(AdapterGroup::kEmbed),
               kOfHead = static_cast<std::size_t>(AdapterGroup::kHead);

/// y = norm(x); rstd = 1/rms per row, kept for the backward pass.
void norm(Builder& b, std::int32_t l, BufferId x, const Weight& w, BufferId y, BufferId rstd) {
  b.op(OpKind::kRmsNorm, l, {x, w.w}, {y, rstd});
}

/// The buffer that a product writes, and what it adds. If TP ranks divide its inputs, each rank computes one
/// part of a sum: the first rank adds bias and residual, and complete_product() sums the parts into y.
struct ProductOutput {
  BufferId out, bias, residual;
};
ProductOutput output_of_product(Builder& b, std::int32_t l, AdapterGroup g, const Weight& bias,
                                BufferId residual, BufferId y) {
  if (!has_divided_inputs(g)) return {y, bias.w, residual};
  const BufferId out =
      b.divides_rows() ? add_all_rows(b, g == AdapterGroup::kO ? role::kOSum : role::kDownSum, l) : y;
  const bool adds = b.adds_to_tensor_sum();
  return {out, adds ? bias.w : kNoBuffer, adds && out == y ? residual : kNoBuffer};
}

/// y = x W^T + bias + residual, in one operation, so that the sum needs no buffer of its own. Returns what it
/// writes.
BufferId linear(Builder& b, std::int32_t l, AdapterGroup g, BufferId x, const Weight& w, const Weight& bias,
                BufferId residual, BufferId y) {
  const BufferId matrix = b.matrix(w, l, role::kDequantized[static_cast<std::size_t>(g)]);
  const ProductOutput o = output_of_product(b, l, g, bias, residual, y);
  b.op(OpKind::kLinear, l, {x, matrix, o.bias, o.residual}, {o.out});
  return o.out;
}

void complete_product(Builder& b, std::int32_t l, AdapterGroup g, BufferId part, BufferId residual,
                      BufferId y) {
  if (!has_divided_inputs(g)) return;
  start_tensor_sum(b, l, part);
  if (part == y) return wait_for_tensor_ranks(b, l, y);
  take_rows_of_sum(b, l, part, residual, y);
}

/// The input of the adapters of a product: x, or in training with dropout what that leaves of it.
BufferId input_of_adapters(Builder& b, std::int32_t l, std::size_t group, BufferId x) {
  if (!b.drops()) return x;
  // Not kept: recompute policies drop it always, and the backward pass computes it again from x.
  const BufferId input = b.act(role::kDropped[group], l, b.p[x].cols);
  b.op(OpKind::kDropout, l, {x, b.micro_batch}, {input});
  return input;
}

/// u = x A^T of the adapters of a product, kept for the gradient of B.
BufferId inner_product(Builder& b, std::int32_t l, std::size_t group, const Adapter& adapter,
                       BufferId input) {
  const BufferId u = b.act(role::kLora[group], l, b.p[adapter.a.w].rows);
  b.op(OpKind::kLinear, l, {input, adapter.a.w, kNoBuffer, kNoBuffer}, {u});
  return u;
}

/// DoRA: computes the factor m / norm of every output of a product. If TP ranks divide its inputs, each rank
/// has only some columns of every row, so the ranks sum the squared norms of their columns first.
BufferId dora_scale(Builder& b, std::int32_t l, AdapterGroup g, const Adapter& adapter, BufferId matrix,
                    std::uint64_t outputs) {
  const auto group = static_cast<std::size_t>(g);
  const BufferId scale = b.add(role::kDoraScale[group], l, Component::kActivations, 2, outputs);
  if (has_divided_inputs(g) && b.has_tensor_ranks()) {
    const BufferId squares = b.add(role::kDoraSquares[group], l, Component::kCommunication, 1, outputs);
    b.op(OpKind::kDoraSquares, l, {matrix, adapter.a.w, adapter.b.w}, {squares});
    sum_over_tensor_ranks(b, l, squares);
    b.op(OpKind::kDoraFactors, l, {squares, adapter.magnitude.w}, {scale});
  } else {
    b.op(OpKind::kDoraScale, l, {matrix, adapter.a.w, adapter.b.w, adapter.magnitude.w}, {scale});
  }
  return scale;
}

/// The product with DoRA: y = m / norm * (x W^T + scale * u B^T) + bias + residual. With dropout, as PEFT
/// does, y = x W^T + bias + residual + the change that the adapters make, computed of the dropped input.
/// Both are linear, so TP ranks can apply the factors before they sum their parts. Returns what it writes.
BufferId dora(Builder& b, std::int32_t l, AdapterGroup g, const Adapter& adapter, BufferId x, const Weight& w,
              const Weight& bias, BufferId residual, BufferId y, LayerActs& a) {
  const auto group = static_cast<std::size_t>(g);
  const std::uint64_t outputs = b.p[y].cols;
  const BufferId matrix = b.matrix(w, l, role::kDequantized[group]);
  const BufferId scale = a.dora_scale[group] = dora_scale(b, l, g, adapter, matrix, outputs);
  const BufferId input = a.lora_input[group] = input_of_adapters(b, l, group, x);
  const ProductOutput o = output_of_product(b, l, g, bias, residual, y);
  if (b.drops()) b.op(OpKind::kLinear, l, {x, matrix, o.bias, o.residual}, {o.out});
  const BufferId unscaled = a.unscaled[group] = b.act(role::kUnscaled[group], l, outputs);
  b.op(OpKind::kLinear, l, {input, matrix, kNoBuffer, kNoBuffer}, {unscaled});
  const BufferId u = a.lora[group] = inner_product(b, l, group, adapter, input);
  b.op(OpKind::kLoraB, l, {u, adapter.b.w, unscaled}, {unscaled});
  if (b.drops()) {
    b.op(OpKind::kLoraB, l, {u, adapter.b.w, o.out}, {o.out});
    b.op(OpKind::kDora, l, {unscaled, scale, kNoBuffer, kNoBuffer, o.out}, {o.out});
  } else {
    b.op(OpKind::kDora, l, {unscaled, scale, o.bias, o.residual, kNoBuffer}, {o.out});
  }
  return o.out;
}

/// y = x W^T + bias + residual, and scale * (x A^T) B^T for the adapted matrices of the product.
void product(Builder& b, std::int32_t l, AdapterGroup g, const LayerWeights& layer, BufferId x,
             const Weight& w, const Weight& bias, BufferId residual, BufferId y, LayerActs& a) {
  const auto group = static_cast<std::size_t>(g);
  const Adapter& adapter = layer.adapter(g);
  const bool has_magnitudes = adapter.magnitude.w != kNoBuffer;
  const BufferId out = has_magnitudes ? dora(b, l, g, adapter, x, w, bias, residual, y, a)
                                      : linear(b, l, g, x, w, bias, residual, y);
  if (adapter.present() && !has_magnitudes) {
    a.lora_input[group] = input_of_adapters(b, l, group, x);
    a.lora[group] = inner_product(b, l, group, adapter, a.lora_input[group]);
    b.op(OpKind::kLoraB, l, {a.lora[group], adapter.b.w, out}, {out});
  }
  complete_product(b, l, g, out, residual, y);
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
  a.h1 = b.own_act(role::kH1, l, m.hidden);
  a.rstd1 = b.own_stat(role::kRstd1, l);
  norm(b, l, a.x, w.norm1, a.h1, a.rstd1);
  a.h1 = gather_rows(b, l, a.h1, role::kH1All);
  a.qkv = b.act(role::kQkv, l, m.qkv_width());
  product(b, l, AdapterGroup::kQkv, w, a.h1, w.qkv, w.qkv_bias, kNoBuffer, a.qkv, a);
  if (m.qk_norm) {
    a.qk_pre = b.act(role::kQkPre, l, m.q_width() + m.kv_width());
    a.qk_rstd = b.stat(role::kQkRstd, l, std::uint64_t{m.heads} + m.kv_heads);
    b.op(OpKind::kQkNorm, l, {a.qkv, w.q_norm.w, w.k_norm.w}, {a.qkv, a.qk_pre, a.qk_rstd});
  }
  // In place: qkv before the rotation is not needed again, since the backward pass rotates the gradient back.
  b.op(OpKind::kRope, l, {a.qkv, b.rope_table}, {a.qkv});
  attention(b, l, a);
  a.x_mid = b.own_act(role::kXMid, l, m.hidden);
  product(b, l, AdapterGroup::kO, w, a.attn_out, w.o, w.o_bias, a.x, a.x_mid, a);

  a.h2 = b.own_act(role::kH2, l, m.hidden);
  a.rstd2 = b.own_stat(role::kRstd2, l);
  norm(b, l, a.x_mid, w.norm2, a.h2, a.rstd2);
  a.h2 = gather_rows(b, l, a.h2, role::kH2All);
  a.gate_up = b.act(role::kGateUp, l, 2 * std::uint64_t{m.intermediate});
  product(b, l, AdapterGroup::kGateUp, w, a.h2, w.gate_up, w.gate_up_bias, kNoBuffer, a.gate_up, a);
  a.act = b.act(role::kAct, l, m.intermediate);
  assert(a.x != kNoBuffer && a.x_mid != kNoBuffer);
  b.op(OpKind::kSwiGlu, l, {a.gate_up}, {a.act});
  const bool last = static_cast<std::uint32_t>(l) + 1 == m.layers;
  const BufferId next = last ? b.own_act(role::kXOut, -1, m.hidden) : b.own_act(role::kX, l + 1, m.hidden);
  product(b, l, AdapterGroup::kDown, w, a.act, w.down, w.down_bias, a.x_mid, next, a);
  return next;
}

/// x = table[ids], with an adapter + scale * u B^T, and with DoRA times m / norm of every column. u is a row
/// of A per token. The adapter has no dropout, as in PEFT. Of a TP rank, which has rows of the table and of
/// A: its part of the sum.
void embed(Builder& b, BufferId ids, BufferId x, ForwardActs& f) {
  const Adapter& adapter = b.weights.embed_adapter;
  const bool has_magnitudes = adapter.magnitude.w != kNoBuffer;
  const std::uint64_t outputs = b.p.model.hidden;
  if (has_magnitudes) f.embed_unscaled = b.act(role::kUnscaled[kOfEmbedding], -1, outputs);
  const BufferId sum = has_magnitudes ? f.embed_unscaled : x;
  b.op(OpKind::kEmbed, -1, {b.weights.embed.w, ids}, {sum});
  if (!adapter.present()) return;
  f.embed_lora = b.act(role::kEmbedLora, -1, b.p[adapter.a.w].cols);
  b.op(OpKind::kEmbed, -1, {adapter.a.w, ids}, {f.embed_lora});
  b.op(OpKind::kLoraB, -1, {f.embed_lora, adapter.b.w, sum}, {sum});
  if (!has_magnitudes) return;
  f.embed_scale = dora_scale(b, -1, AdapterGroup::kEmbed, adapter, b.weights.embed.w, outputs);
  b.op(OpKind::kDora, -1, {sum, f.embed_scale, kNoBuffer, kNoBuffer, kNoBuffer}, {x});
}

/// u = hf A^T of the adapter of the head, whose operation adds the product with B, a chunk of logits at a
/// time; and with DoRA the factors of the logits.
void adapt_head(Builder& b, ForwardActs& f) {
  Adapter adapter = b.weights.head_adapter;
  if (!adapter.present()) return;
  if (ties_adapter(b.p.run)) {
    const BufferId of_embedding = b.weights.embed_adapter.b.w;
    adapter.a.w = b.add(role::kHeadLoraA, -1, Component::kActivations, b.p[of_embedding].cols,
                        b.p.model.hidden, b.storage_type());
    b.op(OpKind::kTranspose, -1, {of_embedding}, {adapter.a.w});
  }
  f.head_a = adapter.a.w;
  const bool has_magnitudes = adapter.magnitude.w != kNoBuffer;
  const BufferId input = dropped_input_of_head(b, f.hf);
  if (has_magnitudes && input != f.hf) f.head_dropped = input;
  f.head_lora = b.act(role::kHeadLora, -1, b.p[adapter.a.w].rows);
  b.op(OpKind::kLinear, -1, {input, adapter.a.w, kNoBuffer, kNoBuffer}, {f.head_lora});
  if (has_magnitudes)
    f.head_scale = dora_scale(b, -1, AdapterGroup::kHead, adapter, b.weights.head.w, b.p.model.vocab);
}

}  // namespace

BufferId dropped_input_of_head(Builder& b, BufferId hf) {
  if (!b.drops()) return hf;
  const BufferId input = b.act(role::kHeadDropped, -1, b.p[hf].cols);
  b.op(OpKind::kDropout, -1, {hf, b.micro_batch}, {input});
  return input;
}

ForwardActs build_forward(Builder& b) {
  const ModelSpec& m = b.p.model;
  ForwardActs f{};
  f.layers.resize(m.layers);
  BufferId x = b.own_act(role::kX, 0, m.hidden);
  const BufferId embedded = b.divides_rows() ? add_all_rows(b, role::kEmbedSum, -1) : x;
  const BufferId ids = b.phase == kGenerate ? b.token : b.ids;
  embed(b, ids, embedded, f);
  start_tensor_sum(b, -1, embedded);
  if (b.divides_rows())
    take_rows_of_sum(b, -1, embedded, kNoBuffer, x);
  else
    wait_for_tensor_ranks(b, -1, x);
  for (std::uint32_t l = 0; l < m.layers; ++l) {
    f.layers[l].x = x;
    x = layer(b, static_cast<std::int32_t>(l), b.weights.layers[l], f.layers[l]);
  }
  f.x_out = x;
  f.hf = b.own_act(role::kHf, -1, m.hidden);
  f.rstd_f = b.own_stat(role::kRstdF, -1);
  norm(b, -1, f.x_out, b.weights.final_norm, f.hf, f.rstd_f);
  f.hf = gather_rows(b, -1, f.hf, role::kHfAll);
  adapt_head(b, f);
  return f;
}

/// Logits of one chunk of tokens and their losses; docs/memory-model.md, "Activations of one layer".
HeadScratch head_scratch(Builder& b, const ForwardActs& f) {
  const std::uint64_t chunk = head_chunk(b.p.traits, b.rows);
  HeadScratch s;
  s.logits = b.add(role::kLogits, -1, Component::kLogits, chunk, b.p.model.vocab, b.storage_type());
  if (b.on_device()) s.losses = b.scratch(role::kLosses, -1, chunk, 1);
  // The backward pass reads what the magnitudes multiply.
  if (f.head_scale != kNoBuffer && b.phase != kEval)
    s.unscaled =
        b.add(role::kUnscaled[kOfHead], -1, Component::kLogits, chunk, b.p.model.vocab, b.storage_type());
  s.stats = head_stats(b, f, s.logits, s.unscaled);
  return s;
}

void build_eval(Builder& b) {
  b.begin(SectionKind::kEval, kEval, kOfEval, b.tokens());
  const ForwardActs f = build_forward(b);
  const HeadScratch s = head_scratch(b, f);
  b.op(OpKind::kHeadEval, -1,
       {f.hf, b.weights.head.w, b.targets, s.logits, b.scalars, s.losses, s.stats, f.head_lora,
        b.weights.head_adapter.b.w, f.head_scale},
       {b.scalars});
  b.end();
}

void build_generate(Builder& b) {
  b.begin(SectionKind::kGenerate, kGenerate, kOfGenerate, 1);
  const ForwardActs f = build_forward(b);
  const std::uint64_t vocab = b.p.model.vocab * (b.has_tensor_ranks() ? b.p.run.parallel.tensor : 1);
  const BufferId logits = b.add(role::kLogits, -1, Component::kLogits, 1, vocab, b.storage_type());
  b.op(OpKind::kHeadLogits, -1,
       {f.hf, b.weights.head.w, f.head_lora, b.weights.head_adapter.b.w, f.head_scale, kNoBuffer, kNoBuffer},
       {logits});
  gather_over_tensor_ranks(b, logits);
  b.end();
}

}  // namespace trainhost::step
