// Operations that treat every token by itself, attention, and the gradients of small weights: from operands
// to kernels.
#include "core/abi/error_guard.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/api.hpp"
#include "plugins/cuda/engine/exec.hpp"

namespace trainhost::cuda {

using step::OpKind;
using namespace step::operand;

template <class T>
void queue_rows(Exec& e, const step::Op& op) {
  const ModelSpec& m = e.model();
  const std::uint64_t rows = e.step.rows;
  const std::uint32_t h = m.hidden, slots = e.program.traits.slots;
  const float eps = static_cast<float>(m.norm_eps);
  const auto in = [&](step::In k) { return e.get<T>(op[k]); };
  const auto f32 = [&](step::In k) { return e.get<float>(op[k]); };
  const auto ids = [&](step::In k) { return e.get<std::int32_t>(op[k]); };
  const auto out = [&](step::Out k) { return e.get<T>(op[k]); };
  const auto slot_sums = [&](std::uint32_t n, std::uint32_t ld, const float* partials, step::In grad) {
    e.queued(sum_slots(e.stream, slots, n, ld, partials, e.overwrite(op), f32(grad)), op);
  };
  switch (op.kind) {
    case OpKind::kEmbed:
      return e.queued(embed<T>(e.stream, rows, h, ids(embed::kIds), in(embed::kTable), out(embed::kX)), op);
    case OpKind::kEmbedBwd:
      if (e.overwrite(op))
        e.queued(cudaMemsetAsync(f32(embed_bwd::kGradTable), 0, e.buffer(op[embed_bwd::kGradTable]).bytes(),
                                 e.stream),
                 op);
      return e.queued(embed_bwd<T>(e.stream, rows, h, ids(embed_bwd::kIds), ids(embed_bwd::kOrder),
                                   in(embed_bwd::kDx), f32(embed_bwd::kGradTable)),
                      op);
    case OpKind::kRmsNorm:
      return e.queued(rms_norm<T>(e.stream, rows, h, in(rms_norm::kX), in(rms_norm::kWeight), eps,
                                  out(rms_norm::kY), e.get<float>(op[rms_norm::kRstd])),
                      op);
    case OpKind::kRmsNormBwd:
      e.queued(
          rms_norm_bwd<T>(e.stream, rows, h, in(rms_norm_bwd::kDy), in(rms_norm_bwd::kX),
                          f32(rms_norm_bwd::kRstd), in(rms_norm_bwd::kWeight), !(op.flags & step::kFreshDx),
                          out(rms_norm_bwd::kDx), slots, f32(rms_norm_bwd::kPartials)),
          op);
      return slot_sums(h, h, f32(rms_norm_bwd::kPartials), rms_norm_bwd::kGradWeight);
    case OpKind::kQkNorm:
      return e.queued(qk_norm<T>(e.stream, rows, m.heads, m.kv_heads, m.head_dim, in(qk_norm::kQkv),
                                 in(qk_norm::kQWeight), in(qk_norm::kKWeight), eps, out(qk_norm::kPre),
                                 e.get<float>(op[qk_norm::kRstd])),
                      op);
    case OpKind::kQkNormBwd: {
      const std::uint32_t d = m.head_dim;
      e.queued(qk_norm_bwd<T>(e.stream, rows, m.heads, m.kv_heads, d, in(qk_norm_bwd::kDQkv),
                              in(qk_norm_bwd::kPre), f32(qk_norm_bwd::kRstd), in(qk_norm_bwd::kQWeight),
                              in(qk_norm_bwd::kKWeight), slots, f32(qk_norm_bwd::kPartials)),
               op);
      slot_sums(d, 2 * d, f32(qk_norm_bwd::kPartials), qk_norm_bwd::kGradQWeight);
      return slot_sums(d, 2 * d, f32(qk_norm_bwd::kPartials) + d, qk_norm_bwd::kGradKWeight);
    }
    case OpKind::kRope:
    case OpKind::kRopeBwd:
      return e.queued(
          rope<T>(e.stream, rows, m.heads + m.kv_heads, m.head_dim, static_cast<std::uint32_t>(m.qkv_width()),
                  in(rope::kQkv), f32(rope::kTable), e.step.position, e.program.run.seq_len,
                  op.kind == OpKind::kRope ? 1.0f : -1.0f),
          op);
    case OpKind::kSwiGlu:
      return e.queued(swiglu<T>(e.stream, rows, m.intermediate, in(swiglu::kGateUp), out(swiglu::kAct)), op);
    case OpKind::kSwiGluBwd:
      return e.queued(
          swiglu_bwd<T>(e.stream, rows, m.intermediate, in(swiglu_bwd::kDAct), in(swiglu_bwd::kGateUp)), op);
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
  const auto in = [&](step::In k) { return e.get<T>(op[k]); };
  if (op.kind == OpKind::kAttention)
    e.queued(attention<T>(e.stream, s, products, in(attention::kQkv), e.get<T>(op[attention::kO]),
                          e.get<float>(op[attention::kLse])),
             op);
  else if (op.kind == OpKind::kAttentionBwd)
    e.queued(attention_bwd<T>(e.stream, s, products, in(attention_bwd::kDO), in(attention_bwd::kO),
                              e.get<float>(op[attention_bwd::kLse]), in(attention_bwd::kQkv),
                              e.get<float>(op[attention_bwd::kScratch]), e.get<T>(op[attention_bwd::kDQkv])),
             op);
  else
    e.queued(attention_step<T>(e.stream, s, e.step.position, in(attention_step::kQkv),
                               in(attention_step::kCacheK), in(attention_step::kCacheV),
                               e.get<float>(op[attention_step::kScratch]), e.get<T>(op[attention_step::kO])),
             op);
}

template <class T>
void queue_bias_gradient(Exec& e, const step::Op& op) {
  const std::uint32_t n = static_cast<std::uint32_t>(e.buffer(op[linear_dw::kDy]).cols),
                      slots = e.program.traits.slots;
  float* partials = e.get<float>(op[linear_dw::kPartials]);
  e.queued(column_sums<T>(e.stream, e.step.rows, n, e.get<T>(op[linear_dw::kDy]), slots, partials), op);
  e.queued(
      sum_slots(e.stream, slots, n, n, partials, e.overwrite(op), e.get<float>(op[linear_dw::kGradBias])),
      op);
}

template void queue_rows<float>(Exec&, const step::Op&);
template void queue_rows<Bf16>(Exec&, const step::Op&);
template void queue_attention<float>(Exec&, const step::Op&);
template void queue_attention<Bf16>(Exec&, const step::Op&);
template void queue_bias_gradient<float>(Exec&, const step::Op&);
template void queue_bias_gradient<Bf16>(Exec&, const step::Op&);

}  // namespace trainhost::cuda
