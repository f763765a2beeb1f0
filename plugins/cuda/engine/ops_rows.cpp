// Maps operations on single tokens (embedding, norms, rotary positions, SwiGLU), attention, and the gradients
// of biases and norm weights to kernels. Computes nothing and decides no order: addresses, shapes and flags
// of the program become arguments. The kernels: plugins/cuda/kernels/kernel_functions.hpp.
#include <cassert>

#include "core/abi/error_guard.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/engine/cudnn_attention.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/kernels/launch.hpp"
#include "plugins/cuda/kernels/parts_kernels.hpp"

namespace trainhost::cuda {

using step::OpKind;
using namespace step::operand;

/// The token ids that a table, or its gradient, has rows of: of a TP rank its part of the vocabulary.
static IdRange ids_of_table(const OpContext& ctx, step::BufferId table) {
  const auto count = static_cast<std::int32_t>(ctx.buffer(table).rows);
  return {static_cast<std::int32_t>(ctx.tensor_rank()) * count, count};
}

template <class T>
void queue_rows(OpContext& ctx, const step::Op& op) {
  const ModelSpec& m = ctx.model();
  const std::uint64_t rows = ctx.rows_of(op);
  const std::uint32_t h = m.hidden, slots = ctx.program.traits.slots;
  const float eps = static_cast<float>(m.norm_eps);
  // Operands by slot: T is the storage type of the run. Statistics and gradients of weights are f32 in every
  // run.
  const auto in = [&](step::In k) { return ctx.get<T>(op[k]); };
  const auto f32 = [&](step::In k) { return ctx.get<float>(op[k]); };
  const auto ids = [&](step::In k) { return ctx.get<std::int32_t>(op[k]); };
  const auto out = [&](step::Out k) { return ctx.get<T>(op[k]); };
  // Gradients of small weights are sums over all tokens: a kernel first writes partial sums [slots, ld], one
  // row per range of tokens, and this one adds the rows in order.
  const auto slot_sums = [&](std::uint32_t n, std::uint32_t ld, const float* partials, step::In grad) {
    if (op[grad] == step::kNoBuffer) return;  // the weight is frozen
    // Queued on the stream of the kernel that writes the partial sums, so it needs no event.
    ctx.check_launch(sum_slots(ctx.stream, slots, n, ld, partials, ctx.overwrite(op), f32(grad)), op);
  };
  // Of a table: h, or of A of the adapter of the embedding the rank.
  const auto columns_of = [&](step::In k) { return static_cast<std::uint32_t>(ctx.buffer(op[k]).cols); };
  switch (op.kind) {
    case OpKind::kEmbed:
      return ctx.check_launch(
          embed_part<T>(ctx.stream, rows, columns_of(embed::kTable), ids(embed::kIds),
                        ids_of_table(ctx, op[embed::kTable]), in(embed::kTable), out(embed::kX)),
          op);
    case OpKind::kEmbedBwd:
      // Only rows of ids that occur are added to, so the others must be cleared first.
      if (ctx.overwrite(op))
        ctx.check_launch(
            clear(ctx.stream, f32(embed_bwd::kGradTable), ctx.buffer(op[embed_bwd::kGradTable]).bytes()), op);
      return ctx.check_launch(
          embed_part_bwd<T>(ctx.stream, rows, columns_of(embed_bwd::kGradTable), ids(embed_bwd::kIds),
                            ids(embed_bwd::kOrder), ids_of_table(ctx, op[embed_bwd::kGradTable]),
                            in(embed_bwd::kDx), f32(embed_bwd::kGradTable)),
          op);
    case OpKind::kRmsNorm:
      return ctx.check_launch(rms_norm<T>(ctx.stream, rows, h, in(rms_norm::kX), in(rms_norm::kWeight), eps,
                                          out(rms_norm::kY), ctx.get<float>(op[rms_norm::kRstd])),
                              op);
    // Without kFreshDx, dx already has the gradient of the residual path around the norm, and this one is
    // added.
    case OpKind::kRmsNormBwd:
      ctx.check_launch(
          rms_norm_bwd<T>(ctx.stream, rows, h, in(rms_norm_bwd::kDy), in(rms_norm_bwd::kX),
                          f32(rms_norm_bwd::kRstd), in(rms_norm_bwd::kWeight), !(op.flags & step::kFreshDx),
                          out(rms_norm_bwd::kDx), slots, f32(rms_norm_bwd::kPartials)),
          op);
      return slot_sums(h, h, f32(rms_norm_bwd::kPartials), rms_norm_bwd::kGradWeight);
    // In place: kPre receives q and k before the norm, which the backward pass needs.
    case OpKind::kQkNorm:
      return ctx.check_launch(qk_norm<T>(ctx.stream, rows, m.heads, m.kv_heads, m.head_dim, in(qk_norm::kQkv),
                                         in(qk_norm::kQWeight), in(qk_norm::kKWeight), eps,
                                         out(qk_norm::kPre), ctx.get<float>(op[qk_norm::kRstd])),
                              op);
    case OpKind::kQkNormBwd: {
      const std::uint32_t d = m.head_dim;  // partial sums [slots, 2d]: weights of q | weights of k
      ctx.check_launch(
          qk_norm_bwd<T>(ctx.stream, rows, m.heads, m.kv_heads, d, in(qk_norm_bwd::kDQkv),
                         in(qk_norm_bwd::kPre), f32(qk_norm_bwd::kRstd), in(qk_norm_bwd::kQWeight),
                         in(qk_norm_bwd::kKWeight), slots, f32(qk_norm_bwd::kPartials)),
          op);
      // One array of partial sums with two gradients: rows are 2d floats apart, of which each call adds d
      // columns.
      slot_sums(d, 2 * d, f32(qk_norm_bwd::kPartials), qk_norm_bwd::kGradQWeight);
      return slot_sums(d, 2 * d, f32(qk_norm_bwd::kPartials) + d, qk_norm_bwd::kGradKWeight);
    }
    // The gradient of a rotation is the inverse rotation. Rows of a micro-batch have positions row % seq_len;
    // the one row of a generated token has ctx.step.position, which is 0 elsewhere. q and k heads are
    // neighbours at the start of a row and are rotated as one group; the v heads after them are not rotated.
    case OpKind::kRope:
    case OpKind::kRopeBwd:
      return ctx.check_launch(
          rope<T>(ctx.stream, rows, m.heads + m.kv_heads, m.head_dim,
                  static_cast<std::uint32_t>(m.qkv_width()), in(rope::kQkv), f32(rope::kTable),
                  ctx.step.position, ctx.program.run.seq_len, op.kind == OpKind::kRope ? 1.0f : -1.0f),
          op);
    case OpKind::kSwiGlu:
      return ctx.check_launch(
          swiglu<T>(ctx.stream, rows, m.intermediate, in(swiglu::kGateUp), out(swiglu::kAct)), op);
    // In place: the gradient of gate and up replaces their values, which no later operation reads.
    case OpKind::kSwiGluBwd:
      return ctx.check_launch(
          swiglu_bwd<T>(ctx.stream, rows, m.intermediate, in(swiglu_bwd::kDAct), in(swiglu_bwd::kGateUp)),
          op);
    case OpKind::kTakeRows:
      return ctx.check_launch(
          take_rows<T>(ctx.stream, rows * h, in(take_rows::kSum) + ctx.tensor_rank() * rows * h,
                       in(take_rows::kResidual), out(take_rows::kY)),
          op);
    default:
      throw abi::StatusError(TH_E_INTERNAL, std::string("no kernel for ") + step::op_info(op.kind).name);
  }
}

// cuDNN reports errors by its own status, so there is no cudaError_t for check_launch(): CudnnAttention
// throws. Counts as one launch, although the library may queue several kernels. The scratch of the backward
// pass is delta[M, heads].
static void queue_cudnn_attention(OpContext& ctx, const step::Op& op, const AttentionShape& s) {
  const auto in = [&](auto slot) { return ctx.get<Bf16>(op[slot]); };
  ++ctx.launches;
  if (op.kind == OpKind::kAttention)
    return ctx.cudnn->forward(ctx.stream, s, in(attention::kQkv), in(attention::kO),
                              ctx.get<float>(op[attention::kLse]));
  ctx.cudnn->backward(ctx.stream, s, in(attention_bwd::kDO), in(attention_bwd::kO),
                      ctx.get<float>(op[attention_bwd::kLse]), in(attention_bwd::kQkv),
                      ctx.get<float>(op[attention_bwd::kScratch]), in(attention_bwd::kDQkv));
}

template <class T>
void queue_attention(OpContext& ctx, const step::Op& op) {
  const ModelSpec& m = ctx.model();
  const std::uint32_t seq = ctx.program.run.seq_len;
  assert(op.kind == OpKind::kAttentionStep ? ctx.step.rows == 1 : ctx.step.rows % seq == 0);
  // Micro-batches consist of whole sequences. Generation attends from one token to a cache of up to `seq`
  // rows. The window may differ from layer to layer.
  AttentionShape s{op.kind == OpKind::kAttentionStep ? 1 : static_cast<std::uint32_t>(ctx.step.rows / seq),
                   seq,
                   m.heads,
                   m.kv_heads,
                   m.head_dim,
                   m.window(static_cast<std::uint32_t>(op.layer))};
  if (ctx.program.run.document_mask && op.kind != OpKind::kAttentionStep)
    s.starts = ctx.get<std::int32_t>(
        op[op.kind == OpKind::kAttention ? attention::kStarts : attention_bwd::kStarts]);
  // Ignored by bf16 runs, whose products always use the tensor cores where the head size permits.
  const F32Products products = ctx.tf32() ? F32Products::kTf32 : F32Products::kExact;
  const auto in = [&](step::In k) { return ctx.get<T>(op[k]); };
  // cuDNN attention is bf16 only (cudnn_limit()), and has no plan for a single token.
  if constexpr (std::is_same_v<T, Bf16>)
    if (ctx.cudnn && op.kind != OpKind::kAttentionStep) return queue_cudnn_attention(ctx, op, s);
  if (op.kind == OpKind::kAttention)
    ctx.check_launch(attention<T>(ctx.stream, s, products, in(attention::kQkv), ctx.get<T>(op[attention::kO]),
                                  ctx.get<float>(op[attention::kLse])),
                     op);
  else if (op.kind == OpKind::kAttentionBwd)
    ctx.check_launch(
        attention_bwd<T>(ctx.stream, s, products, in(attention_bwd::kDO), in(attention_bwd::kO),
                         ctx.get<float>(op[attention_bwd::kLse]), in(attention_bwd::kQkv),
                         ctx.get<float>(op[attention_bwd::kScratch]), ctx.get<T>(op[attention_bwd::kDQkv])),
        op);
  else
    ctx.check_launch(
        attention_step<T>(ctx.stream, s, ctx.step.position, in(attention_step::kQkv),
                          in(attention_step::kCacheK), in(attention_step::kCacheV),
                          ctx.get<float>(op[attention_step::kScratch]), ctx.get<T>(op[attention_step::kO])),
        op);
}

template <class T>
void queue_bias_gradient(OpContext& ctx, const step::Op& op) {
  // Column sums of dy [M, n], in two launches like every sum over tokens: partial sums per slot, then the
  // slots in order.
  const std::uint32_t n = static_cast<std::uint32_t>(ctx.buffer(op[linear_dw::kDy]).cols),
                      slots = ctx.program.traits.slots;
  float* partials = ctx.get<float>(op[linear_dw::kPartials]);
  ctx.check_launch(
      column_sums<T>(ctx.stream, ctx.step.rows, n, ctx.get<T>(op[linear_dw::kDy]), slots, partials), op);
  ctx.check_launch(sum_slots(ctx.stream, slots, n, n, partials, ctx.overwrite(op),
                             ctx.get<float>(op[linear_dw::kGradBias])),
                   op);
}

template void queue_rows<float>(OpContext&, const step::Op&);
template void queue_rows<Bf16>(OpContext&, const step::Op&);
template void queue_attention<float>(OpContext&, const step::Op&);
template void queue_attention<Bf16>(OpContext&, const step::Op&);
template void queue_bias_gradient<float>(OpContext&, const step::Op&);
template void queue_bias_gradient<Bf16>(OpContext&, const step::Op&);

}  // namespace trainhost::cuda
