// The update: squares of all gradients, norm and clip factor, one pass over the parameters. Operations of one
// kind follow each other in the program and go out in launches of many parameters each.
#include <string>

#include "core/step/operands.hpp"
#include "plugins/cuda/engine/api.hpp"
#include "plugins/cuda/engine/exec.hpp"

namespace trainhost::cuda {
namespace {

using step::OpKind;
using namespace step::operand;

std::uint64_t elements(const Exec& e, const step::Op& op) {
  const step::Buffer& grad = e.buffer(op[optimizer::kGrad]);  // kGradSquares has it in the same slot
  return grad.rows * grad.cols;
}

void squares(Exec& e, std::span<const step::Op> ops) {
  double* partials = e.get<double>(ops.front()[grad_squares::kPartials]);
  bool first = true;
  for (std::size_t i = 0; i < ops.size(); i += kMaxPieces, first = false) {
    Pieces<GradPiece> p{};
    for (const step::Op& op : ops.subspan(i, std::min<std::size_t>(kMaxPieces, ops.size() - i)))
      p.piece[p.count++] = {elements(e, op), e.get<float>(op[grad_squares::kGrad])};
    e.queued(grad_squares(e.stream, p, e.program.traits.slots, first, partials), ops.front());
  }
}

}  // namespace

bool one_launch(OpKind kind) {
  return kind == OpKind::kGradSquares || kind == OpKind::kAdamW || kind == OpKind::kSgd ||
         kind == OpKind::kSgdMomentum;
}

template <class T>
void queue_update(Exec& e, std::span<const step::Op> ops) {
  const OpKind kind = ops.front().kind;
  if (kind == OpKind::kGradSquares) return squares(e, ops);
  const RunSpec& r = e.program.run;
  const AdamW adam{static_cast<float>(r.beta1), static_cast<float>(1.0 - r.beta1),
                   static_cast<float>(r.beta2), static_cast<float>(1.0 - r.beta2), static_cast<float>(r.eps)};
  for (std::size_t i = 0; i < ops.size(); i += kMaxPieces) {
    Pieces<ParamPiece<T>> p{};
    for (const step::Op& op : ops.subspan(i, std::min<std::size_t>(kMaxPieces, ops.size() - i))) {
      ParamPiece<T>& q = p.piece[p.count++];
      q.elements = elements(e, op), q.grad = e.get<float>(op[optimizer::kGrad]);
      q.weight = e.get<T>(op[optimizer::kWeight]);
      q.master = e.get<float>(op[optimizer::master(kind)]);
      q.m = kind == OpKind::kSgd ? nullptr : e.get<float>(op[optimizer::kM]);
      q.v = kind == OpKind::kAdamW ? e.get<float>(op[adamw::kV]) : nullptr;
      q.decay = op.flags & step::kDecay;
    }
    const double* s = e.get<double>(ops.front()[optimizer::scalars(kind)]);
    if (kind == OpKind::kAdamW)
      e.queued(adamw<T>(e.stream, p, adam, s), ops.front());
    else if (kind == OpKind::kSgd)
      e.queued(sgd<T>(e.stream, p, s), ops.front());
    else
      e.queued(sgd_momentum<T>(e.stream, p, static_cast<float>(r.beta1), s), ops.front());
  }
}

void queue_finish_norm(Exec& e, const step::Op* any_squares) {
  const double* partials = any_squares ? e.get<double>((*any_squares)[grad_squares::kPartials]) : nullptr;
  ++e.launches;
  check(finish_norm(e.stream, partials ? e.program.traits.slots : 0, partials, e.program.run.clip_norm,
                    e.scalar(step::kLossSum)),
        "queueing the gradient norm");
}

void Exec::queued(cudaError_t status, const step::Op& op) {
  ++launches;
  if (status != cudaSuccess) check(status, "queueing " + step::op_label(program, op));
}

void queue_ops(Exec& e, std::span<const step::Op> ops) {
  const step::Op& op = ops.front();
  switch (op.kind) {
    case OpKind::kLinear:
    case OpKind::kLinearDx:
    case OpKind::kLinearDw:
      return queue_linear(e, op);
    case OpKind::kAttention:
    case OpKind::kAttentionBwd:
    case OpKind::kAttentionStep:
      return e.bf16() ? queue_attention<Bf16>(e, op) : queue_attention<float>(e, op);
    case OpKind::kHeadLoss:
    case OpKind::kHeadEval:
    case OpKind::kHeadBwd:
      return e.bf16() ? queue_head<Bf16>(e, op) : queue_head<float>(e, op);
    case OpKind::kHeadLogits:
      return queue_head_logits(e, op, 0, e.step.rows);
    case OpKind::kGradSquares:
    case OpKind::kAdamW:
    case OpKind::kSgd:
    case OpKind::kSgdMomentum:
      return e.bf16() ? queue_update<Bf16>(e, ops) : queue_update<float>(e, ops);
    default:
      return e.bf16() ? queue_rows<Bf16>(e, op) : queue_rows<float>(e, op);
  }
}

template void queue_update<float>(Exec&, std::span<const step::Op>);
template void queue_update<Bf16>(Exec&, std::span<const step::Op>);

}  // namespace trainhost::cuda
