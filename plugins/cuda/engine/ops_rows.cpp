// Operations that treat every token by itself, attention, and the gradients of small weights: from operands
// to kernels.
#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/api.hpp"
#include "plugins/cuda/engine/exec.hpp"

namespace trainhost::cuda {

using step::OpKind;

template <class T>
void queue_rows(Exec& e, const step::Op& op) {
  const ModelSpec& m = e.model();
  const std::uint64_t rows = e.step.rows;
  const std::uint32_t h = m.hidden, slots = e.program.profile.slots;
  const float eps = static_cast<float>(m.norm_eps);
  const auto in = [&](std::size_t k) { return e.get<T>(op.in[k]); };
  const auto f32 = [&](std::size_t k) { return e.get<float>(op.in[k]); };
  const auto ids = [&](std::size_t k) { return e.get<std::int32_t>(op.in[k]); };
  const auto out = [&](std::size_t k) { return e.get<T>(op.out[k]); };
  const auto slot_sums = [&](std::uint32_t n, std::uint32_t ld, const float* partials, std::size_t grad) {
    e.queued(sum_slots(e.stream, slots, n, ld, partials, e.overwrite(op), f32(grad)), op);
  };
  switch (op.kind) {
    case OpKind::kEmbed:
      return e.queued(embed<T>(e.stream, rows, h, ids(1), in(0), out(0)), op);
    case OpKind::kEmbedBwd:
      if (e.overwrite(op)) e.queued(cudaMemsetAsync(f32(2), 0, e.buffer(op.in[2]).bytes(), e.stream), op);
      return e.queued(embed_bwd<T>(e.stream, rows, h, ids(1), ids(3), in(0), f32(2)), op);
    case OpKind::kRmsNorm:
      return e.queued(rms_norm<T>(e.stream, rows, h, in(0), in(1), eps, out(0), e.get<float>(op.out[1])), op);
    case OpKind::kRmsNormBwd:
      e.queued(rms_norm_bwd<T>(e.stream, rows, h, in(0), in(1), f32(2), in(3), !(op.flags & step::kFreshDx),
                               out(0), slots, f32(6)),
               op);
      return slot_sums(h, h, f32(6), 5);
    case OpKind::kQkNorm:
      return e.queued(qk_norm<T>(e.stream, rows, m.heads, m.kv_heads, m.head_dim, in(0), in(1), in(2), eps,
                                 out(1), e.get<float>(op.out[2])),
                      op);
    case OpKind::kQkNormBwd: {
      const std::uint32_t d = m.head_dim;
      e.queued(qk_norm_bwd<T>(e.stream, rows, m.heads, m.kv_heads, d, in(0), in(1), f32(2), in(3), in(4),
                              slots, f32(7)),
               op);
      slot_sums(d, 2 * d, f32(7), 5);
      return slot_sums(d, 2 * d, f32(7) + d, 6);
    }
    case OpKind::kRope:
    case OpKind::kRopeBwd:
      return e.queued(rope<T>(e.stream, rows, m.heads + m.kv_heads, m.head_dim,
                              static_cast<std::uint32_t>(m.qkv_width()), in(0), f32(1), e.step.position,
                              e.program.run.seq_len, op.kind == OpKind::kRope ? 1.0f : -1.0f),
                      op);
    case OpKind::kSwiGlu:
      return e.queued(swiglu<T>(e.stream, rows, m.intermediate, in(0), out(0)), op);
    case OpKind::kSwiGluBwd:
      return e.queued(swiglu_bwd<T>(e.stream, rows, m.intermediate, in(0), in(1)), op);
    default:
      throw abi::StatusError(TH_E_INTERNAL, std::string("no kernel for ") + step::op_info(op.kind).name);
  }
}

template <class T>
void queue_attention(Exec& e, const step::Op& op) {
  const ModelSpec& m = e.model();
  const std::uint32_t seq = e.program.run.seq_len;
  const AttentionShape s{
      op.kind == OpKind::kAttentionStep ? 1 : static_cast<std::uint32_t>(e.step.rows / seq),
      seq,
      m.heads,
      m.kv_heads,
      m.head_dim,
      m.window(static_cast<std::uint32_t>(op.layer))};
  const F32Products products = e.tf32() ? F32Products::kTf32 : F32Products::kExact;
  const auto in = [&](std::size_t k) { return e.get<T>(op.in[k]); };
  if (op.kind == OpKind::kAttention)
    e.queued(attention<T>(e.stream, s, products, in(0), e.get<T>(op.out[0]), e.get<float>(op.out[1])), op);
  else if (op.kind == OpKind::kAttentionBwd)
    e.queued(attention_bwd<T>(e.stream, s, products, in(0), in(1), e.get<float>(op.in[2]), in(3),
                              e.get<float>(op.in[4]), e.get<T>(op.out[0])),
             op);
  else
    e.queued(attention_step<T>(e.stream, s, e.step.position, in(0), in(1), in(2), e.get<float>(op.in[3]),
                               e.get<T>(op.out[0])),
             op);
}

template <class T>
void queue_bias_gradient(Exec& e, const step::Op& op) {
  const std::uint32_t n = static_cast<std::uint32_t>(e.buffer(op.in[0]).cols),
                      slots = e.program.profile.slots;
  float* partials = e.get<float>(op.in[4]);
  e.queued(column_sums<T>(e.stream, e.step.rows, n, e.get<T>(op.in[0]), slots, partials), op);
  e.queued(sum_slots(e.stream, slots, n, n, partials, e.overwrite(op), e.get<float>(op.in[3])), op);
}

template void queue_rows<float>(Exec&, const step::Op&);
template void queue_rows<Bf16>(Exec&, const step::Op&);
template void queue_attention<float>(Exec&, const step::Op&);
template void queue_attention<Bf16>(Exec&, const step::Op&);
template void queue_bias_gradient<float>(Exec&, const step::Op&);
template void queue_bias_gradient<Bf16>(Exec&, const step::Op&);

}  // namespace trainhost::cuda
