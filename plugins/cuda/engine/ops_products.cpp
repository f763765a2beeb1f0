// Operations that are matrix products: linear layers and the language-model head, which goes through its
// tokens a chunk at a time so that the logits of a micro-batch never exist together (in hybrid they do: on
// their way to the host).
#include <algorithm>

#include "core/step/operands.hpp"
#include "plugins/cuda/engine/api.hpp"
#include "plugins/cuda/engine/exec.hpp"

namespace trainhost::cuda {
namespace {

using step::OpKind;
using namespace step::operand;

GemmShape shape(const Exec& e, Product p, std::uint64_t rows, const step::Buffer& weight) {
  GemmShape s{};
  s.product = p, s.M = rows, s.n = weight.rows, s.k = weight.cols;
  s.operands = e.bf16() ? DType::kBF16 : DType::kF32;
  s.tf32 = e.tf32();
  return s;
}

/// The product of a linear operation over `rows` tokens.
GemmShape linear_shape(const Exec& e, const step::Op& op, std::uint64_t rows) {
  if (op.kind == OpKind::kLinearDx) return shape(e, Product::kDx, rows, e.buffer(op[linear_dx::kWeight]));
  if (op.kind == OpKind::kLinearDw) {
    GemmShape s = shape(e, Product::kDw, rows, e.buffer(op[linear_dw::kGradWeight]));
    s.add = !e.overwrite(op);
    return s;
  }
  GemmShape s = shape(e, Product::kForward, rows, e.buffer(op[linear::kWeight]));
  s.bias = op[linear::kBias] != step::kNoBuffer;
  s.add = op[linear::kResidual] != step::kNoBuffer;
  return s;
}

template <class T>
struct Head {
  std::uint64_t h, v, chunk;
  T *hf, *logits;
  const T* w;
  const std::int32_t* targets;
  float *grad, *losses;
};

/// d hf and the head's gradient from a chunk's gradients: the weight's first, because it needs hf, which
/// becomes its own gradient.
template <class T>
void head_gradients(Exec& e, const step::Op& op, const Head<T>& c, const step::Buffer& w, std::uint64_t first,
                    std::uint64_t rows, const T* d_logits) {
  GemmShape dw = shape(e, Product::kDw, rows, w);
  dw.add = first != 0 || !e.overwrite(op);
  T* hf = c.hf + first * c.h;
  e.gemm.run(e.stream, dw, d_logits, hf, nullptr, nullptr, c.grad);
  e.gemm.run(e.stream, shape(e, Product::kDx, rows, w), d_logits, c.w, nullptr, nullptr, hf);
  e.launches += 2;
}

}  // namespace

void queue_linear(Exec& e, const step::Op& op) {
  const GemmShape s = linear_shape(e, op, e.step.rows);
  ++e.launches;
  const auto at = [&](auto slot) { return e.get<void>(op[slot]); };
  if (op.kind == OpKind::kLinear)
    return e.gemm.run(e.stream, s, at(linear::kX), at(linear::kWeight), at(linear::kBias),
                      at(linear::kResidual), at(linear::kY));
  if (op.kind == OpKind::kLinearDx)
    return e.gemm.run(e.stream, s, at(linear_dx::kDy), at(linear_dx::kWeight), nullptr, nullptr,
                      at(linear_dx::kDx));
  e.gemm.run(e.stream, s, at(linear_dw::kDy), at(linear_dw::kX), nullptr, nullptr,
             at(linear_dw::kGradWeight));
  if (op[linear_dw::kGradBias] == step::kNoBuffer) return;
  if (e.bf16())
    queue_bias_gradient<Bf16>(e, op);
  else
    queue_bias_gradient<float>(e, op);
}

template <class T>
void queue_head(Exec& e, const step::Op& op) {
  const bool train = op.kind == OpKind::kHeadLoss, gradient_given = op.kind == OpKind::kHeadBwd;
  const step::Buffer& w = e.buffer(op[gradient_given ? head_bwd::kHead : head::kHead]);
  Head<T> c{};
  c.h = w.cols, c.v = w.rows;
  if (gradient_given) {
    c.hf = e.get<T>(op[head_bwd::kHf]), c.w = e.get<T>(op[head_bwd::kHead]);
    c.grad = e.get<float>(op[head_bwd::kGradHead]);
    return head_gradients<T>(e, op, c, w, 0, e.step.rows, e.get<T>(op[head_bwd::kDLogits]));
  }
  const step::BufferId logits = op[head::logits(op.kind)];
  c.chunk = e.buffer(logits).rows;
  c.hf = e.get<T>(op[head::kHf]), c.w = e.get<T>(op[head::kHead]), c.logits = e.get<T>(logits);
  c.targets = e.get<std::int32_t>(op[head::kTargets]), c.losses = e.get<float>(op[head::losses(op.kind)]);
  c.grad = train ? e.get<float>(op[head_loss::kGradHead]) : nullptr;
  double* sum = e.scalar(train ? step::kLossSum : step::kEvalLossSum);
  for (std::uint64_t first = 0; first < e.step.rows; first += c.chunk) {
    const std::uint64_t rows = std::min(c.chunk, e.step.rows - first);
    e.gemm.run(e.stream, shape(e, Product::kForward, rows, w), c.hf + first * c.h, c.w, nullptr, nullptr,
               c.logits);
    ++e.launches;
    e.queued(cross_entropy<T>(e.stream, rows, c.v, c.logits, c.targets + first,
                              train ? e.scalar(step::kLossScale) : nullptr, c.losses),
             op);
    e.queued(add_losses(e.stream, rows, c.losses, sum), op);
    if (train) head_gradients<T>(e, op, c, w, first, rows, c.logits);
  }
}

void queue_head_logits(Exec& e, const step::Op& op, std::uint64_t first, std::uint64_t rows) {
  const step::Buffer& w = e.buffer(op[head_logits::kHead]);
  const std::uint64_t el = size_of(e.buffer(op[head_logits::kHf]).dtype);
  ++e.launches;
  e.gemm.run(e.stream, shape(e, Product::kForward, rows, w),
             e.get<std::byte>(op[head_logits::kHf]) + first * w.cols * el,
             e.get<void>(op[head_logits::kHead]), nullptr, nullptr,
             e.get<std::byte>(op[head_logits::kLogits]) + first * w.rows * el);
}

void prepare_products(Exec& e) {
  const std::uint64_t tokens = e.program.run.tokens_per_micro_batch();
  for (const step::Op& op : e.program.ops) {
    const std::uint64_t rows = op.rows;
    if (op.kind == OpKind::kLinear || op.kind == OpKind::kLinearDx || op.kind == OpKind::kLinearDw) {
      for (bool first : {true, false}) {
        e.step.first_micro = first;
        e.gemm.prepare(linear_shape(e, op, rows));
      }
    } else if (op.kind == OpKind::kHeadLoss || op.kind == OpKind::kHeadEval) {
      const step::Buffer& w = e.buffer(op[head::kHead]);
      const std::uint64_t chunk = e.buffer(op[head::logits(op.kind)]).rows;
      for (std::uint64_t part : {std::min(chunk, tokens), tokens % chunk}) {
        if (part == 0) continue;
        e.gemm.prepare(shape(e, Product::kForward, part, w));
        if (op.kind == OpKind::kHeadEval) continue;
        GemmShape dw = shape(e, Product::kDw, part, w);
        for (bool add : {false, true}) dw.add = add, e.gemm.prepare(dw);
        e.gemm.prepare(shape(e, Product::kDx, part, w));
      }
    } else if (op.kind == OpKind::kHeadBwd) {
      const step::Buffer& w = e.buffer(op[head_bwd::kHead]);
      GemmShape dw = shape(e, Product::kDw, rows, w);
      for (bool add : {false, true}) dw.add = add, e.gemm.prepare(dw);
      e.gemm.prepare(shape(e, Product::kDx, rows, w));
    }
  }
}

template void queue_head<float>(Exec&, const step::Op&);
template void queue_head<Bf16>(Exec&, const step::Op&);

}  // namespace trainhost::cuda
