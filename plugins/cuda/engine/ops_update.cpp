// Maps the operations of the update to kernels: sums of squares of all gradients, gradient norm and clip
// factor, and one pass of the optimizer over every parameter. Operations of one kind are consecutive in the
// program and are combined into launches of up to kMaxPieces parameters. Also dispatches every operation by
// kind (queue_ops). Optimizers that update tensor by tensor: ops_optimizers.cpp.
#include <string>

#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/kernels/lion.hpp"

namespace trainhost::cuda {
namespace {

using step::OpKind;
using namespace step::operand;

// The elements of a buffer that the operation works on: all, or the shard of this rank. State has nothing
// else.
Shard updated(const OpContext& ctx, step::BufferId b) { return step::updated_elements(ctx.program, b); }

/// Adds the squares of all gradients to partials[slots]; the first launch overwrites them.
void queue_grad_squares(OpContext& ctx, std::span<const step::Op> ops) {
  double* partials = ctx.get<double>(ops.front()[grad_squares::kPartials]);
  // Launches of one stream run in order, so a later launch adds to what the first one wrote.
  bool first = true;
  for (std::size_t i = 0; i < ops.size(); i += kMaxPieces, first = false) {
    // Passed by value as a kernel argument: no array of pointers has to be copied to the device first.
    Pieces<GradPiece> p{};
    for (const step::Op& op : ops.subspan(i, std::min<std::size_t>(kMaxPieces, ops.size() - i))) {
      const Shard part = step::shard_of(ctx.program, op[grad_squares::kGrad]);
      p.piece[p.count++] = {part.count, ctx.get<float>(op[grad_squares::kGrad]) + part.first};
    }
    ctx.check_launch(grad_squares(ctx.stream, p, ctx.program.traits.slots, first, partials), ops.front());
  }
}

}  // namespace

bool shares_launch(OpKind kind) {
  return kind == OpKind::kGradSquares || kind == OpKind::kAdamW || kind == OpKind::kSgd ||
         kind == OpKind::kSgdMomentum || kind == OpKind::kLion || kind == OpKind::kAdamW8bit;
}

template <class T>
void queue_update(OpContext& ctx, std::span<const step::Op> ops) {
  const OpKind kind = ops.front().kind;
  if (kind == OpKind::kGradSquares) return queue_grad_squares(ctx, ops);
  const RunSpec& r = ctx.program.run;
  const AdamW adam = adamw_constants(r);
  const LionBetas betas{adam.beta1, adam.one_minus_beta1, adam.beta2, adam.one_minus_beta2};
  // Most parameters are too small to fill the device, and a launch costs a few microseconds, so up to
  // kMaxPieces of them share one. Which parameters share a launch does not affect the bits: every element is
  // independent.
  for (std::size_t i = 0; i < ops.size(); i += kMaxPieces) {
    Pieces<ParamPiece<T>> p{};
    for (const step::Op& op : ops.subspan(i, std::min<std::size_t>(kMaxPieces, ops.size() - i))) {
      ParamPiece<T>& q = p.piece[p.count++];
      const step::BufferId grad = op[optimizer::kGrad], weight = op[optimizer::kWeight];
      q.elements = updated(ctx, grad).count, q.grad = ctx.get<float>(grad) + updated(ctx, grad).first;
      q.weight = ctx.get<T>(weight) + updated(ctx, weight).first;
      // Null without a master copy: the weight itself is then f32 and is updated.
      q.master = ctx.get<float>(op[optimizer::master(kind)]);
      // Operand slots depend on the optimizer, so slots that it does not have are not read.
      q.m = kind == OpKind::kSgd ? nullptr : ctx.get<float>(op[optimizer::kM]);
      q.v = kind == OpKind::kAdamW ? ctx.get<float>(op[adamw::kV]) : nullptr;
      q.decay = op.flags & step::kDecay;
    }
    // All operations of the device share the scalars buffer; step size and decision are read from it by the
    // kernels.
    const double* s = ctx.get<double>(ops.front()[optimizer::scalars(kind)]);
    if (kind == OpKind::kAdamW)
      ctx.check_launch(adamw<T>(ctx.stream, p, adam, s), ops.front());
    else if (kind == OpKind::kSgd)
      ctx.check_launch(sgd<T>(ctx.stream, p, s), ops.front());
    else if (kind == OpKind::kLion)
      ctx.check_launch(lion<T>(ctx.stream, p, betas, s), ops.front());
    else
      ctx.check_launch(sgd_momentum<T>(ctx.stream, p, static_cast<float>(r.beta1), s), ops.front());
  }
}

void queue_finish_norm(OpContext& ctx, const step::Op* any_squares) {
  // All kGradSquares operations of the device share one buffer of partial sums.
  const double* partials = any_squares ? ctx.get<double>((*any_squares)[grad_squares::kPartials]) : nullptr;
  // Without gradients on the device (streamed mode) only the sums that the host sent are used.
  ++ctx.launches;
  check(finish_norm(ctx.stream, partials ? ctx.program.traits.slots : 0, partials, ctx.program.run.clip_norm,
                    ctx.scalar(step::kLossSum)),
        "queueing the gradient norm");
}

/// The part of a micro-batch's gradient that this rank adds up is a sum over one slot.
void queue_add_grad(OpContext& ctx, const step::Op& op) {
  const Shard part = step::shard_of(ctx.program, op[add_grad::kPart]);
  const auto n = static_cast<std::uint32_t>(part.count);
  if (n == 0) return;
  ctx.check_launch(sum_slots(ctx.stream, 1, n, n, ctx.get<float>(op[add_grad::kPart]) + part.first,
                             ctx.overwrite(op), ctx.get<float>(op[add_grad::kGrad])),
                   op);
}

void OpContext::check_launch(cudaError_t status, const step::Op& op) {
  ++launches;
  if (status != cudaSuccess) check(status, "queueing " + step::op_label(program, op));
}

void queue_ops(OpContext& ctx, std::span<const step::Op> ops) {
  const step::Op& op = ops.front();
  // Operations with their own file first; all others are operations on single tokens (ops_rows.cpp).
  switch (op.kind) {
    case OpKind::kLinear:
    case OpKind::kLinearDx:
    case OpKind::kLinearDw:
      return queue_linear(ctx, op);
    case OpKind::kLinearDxAdd:
      return queue_linear_dx_add(ctx, op);
    case OpKind::kLoraB:
    case OpKind::kLoraBDx:
    case OpKind::kLoraBDw:
      return queue_lora(ctx, op);
    case OpKind::kDropout:
    case OpKind::kDropoutAdd:
      return ctx.bf16() ? queue_dropout<Bf16>(ctx, op) : queue_dropout<float>(ctx, op);
    case OpKind::kDequantize:
      return ctx.bf16() ? queue_dequantize<Bf16>(ctx, op) : queue_dequantize<float>(ctx, op);
    case OpKind::kTranspose:
      return ctx.bf16() ? queue_transpose<Bf16>(ctx, op) : queue_transpose<float>(ctx, op);
    case OpKind::kDoraScale:
    case OpKind::kDoraSquares:
    case OpKind::kDoraFactors:
    case OpKind::kDora:
    case OpKind::kDoraBwd:
      return ctx.bf16() ? queue_dora<Bf16>(ctx, op) : queue_dora<float>(ctx, op);
    case OpKind::kAttention:
    case OpKind::kAttentionBwd:
    case OpKind::kAttentionStep:
      return ctx.bf16() ? queue_attention<Bf16>(ctx, op) : queue_attention<float>(ctx, op);
    case OpKind::kHeadLoss:
    case OpKind::kHeadEval:
    case OpKind::kHeadBwd:
      return ctx.bf16() ? queue_head<Bf16>(ctx, op) : queue_head<float>(ctx, op);
    case OpKind::kHeadStats:
      return ctx.bf16() ? queue_head_stats<Bf16>(ctx, op) : queue_head_stats<float>(ctx, op);
    case OpKind::kHeadLogits:
      return queue_head_logits(ctx, op, 0, ctx.step.rows);
    case OpKind::kGradSquares:
    case OpKind::kAdamW:
    case OpKind::kSgd:
    case OpKind::kSgdMomentum:
    case OpKind::kLion:
      return ctx.bf16() ? queue_update<Bf16>(ctx, ops) : queue_update<float>(ctx, ops);
    case OpKind::kAdamW8bit:
      return ctx.bf16() ? queue_adamw_8bit<Bf16>(ctx, ops) : queue_adamw_8bit<float>(ctx, ops);
    case OpKind::kAdafactor:
      return ctx.bf16() ? queue_adafactor<Bf16>(ctx, op) : queue_adafactor<float>(ctx, op);
    case OpKind::kAdafactorSums:
      return ctx.bf16() ? queue_adafactor_sums<Bf16>(ctx, op) : queue_adafactor_sums<float>(ctx, op);
    case OpKind::kAdafactorChange:
      return ctx.bf16() ? queue_adafactor_change<Bf16>(ctx, op) : queue_adafactor_change<float>(ctx, op);
    case OpKind::kMuon:
      return ctx.bf16() ? queue_muon<Bf16>(ctx, op) : queue_muon<float>(ctx, op);
    case OpKind::kMuonDirection:
      return queue_muon_direction(ctx, op);
    case OpKind::kMuonOrthogonalise:
      return queue_muon_orthogonalise(ctx, op);
    case OpKind::kAddGrad:
      return queue_add_grad(ctx, op);
    default:
      return ctx.bf16() ? queue_rows<Bf16>(ctx, op) : queue_rows<float>(ctx, op);
  }
}

template void queue_update<float>(OpContext&, std::span<const step::Op>);
template void queue_update<Bf16>(OpContext&, std::span<const step::Op>);

}  // namespace trainhost::cuda
