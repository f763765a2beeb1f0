// Operations that are matrix products: linear layers and the language-model head, which goes through its
// tokens a chunk at a time so that the logits of a micro-batch never exist together (in hybrid they do: on
// their way to the host).
#include <algorithm>

#include "plugins/cuda/engine/api.hpp"
#include "plugins/cuda/engine/exec.hpp"

namespace trainhost::cuda {
namespace {

using step::OpKind;

GemmShape shape(const Exec& e, Product p, std::uint64_t rows, const step::Buffer& weight) {
  GemmShape s{};
  s.product = p, s.M = rows, s.n = weight.rows, s.k = weight.cols;
  s.operands = e.bf16() ? DType::kBF16 : DType::kF32;
  s.tf32 = e.tf32();
  return s;
}

/// The product of a linear operation over `rows` tokens.
GemmShape linear_shape(const Exec& e, const step::Op& op, std::uint64_t rows) {
  if (op.kind == OpKind::kLinearDx) return shape(e, Product::kDx, rows, e.buffer(op.in[1]));
  if (op.kind == OpKind::kLinearDw) {
    GemmShape s = shape(e, Product::kDw, rows, e.buffer(op.in[2]));
    s.add = !e.overwrite(op);
    return s;
  }
  GemmShape s = shape(e, Product::kForward, rows, e.buffer(op.in[1]));
  s.bias = op.in[2] != step::kNoBuffer;
  s.add = op.in[3] != step::kNoBuffer;
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
  const auto in = [&](std::size_t k) { return e.get<void>(op.in[k]); };
  if (op.kind != OpKind::kLinearDw) {
    const bool forward = op.kind == OpKind::kLinear;
    return e.gemm.run(e.stream, s, in(0), in(1), forward ? in(2) : nullptr, forward ? in(3) : nullptr,
                      e.get<void>(op.out[0]));
  }
  e.gemm.run(e.stream, s, in(0), in(1), nullptr, nullptr, in(2));
  if (op.in[3] == step::kNoBuffer) return;
  if (e.bf16())
    queue_bias_gradient<Bf16>(e, op);
  else
    queue_bias_gradient<float>(e, op);
}

template <class T>
void queue_head(Exec& e, const step::Op& op) {
  const bool train = op.kind == OpKind::kHeadLoss, given = op.kind == OpKind::kHeadBwd;
  const step::Buffer& w = e.buffer(op.in[given ? 2 : 1]);
  Head<T> c{};
  c.h = w.cols, c.v = w.rows;
  if (given) {
    c.hf = e.get<T>(op.in[1]), c.w = e.get<T>(op.in[2]), c.grad = e.get<float>(op.in[3]);
    return head_gradients<T>(e, op, c, w, 0, e.step.rows, e.get<T>(op.in[0]));
  }
  const std::size_t logits = train ? 4 : 3;
  c.chunk = e.buffer(op.in[logits]).rows;
  c.hf = e.get<T>(op.in[0]), c.w = e.get<T>(op.in[1]), c.logits = e.get<T>(op.in[logits]);
  c.targets = e.get<std::int32_t>(op.in[2]), c.losses = e.get<float>(op.in[train ? 6 : 5]);
  c.grad = train ? e.get<float>(op.in[3]) : nullptr;
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
  const step::Buffer& w = e.buffer(op.in[1]);
  const std::uint64_t el = size_of(e.buffer(op.in[0]).dtype);
  ++e.launches;
  e.gemm.run(e.stream, shape(e, Product::kForward, rows, w), e.get<std::byte>(op.in[0]) + first * w.cols * el,
             e.get<void>(op.in[1]), nullptr, nullptr, e.get<std::byte>(op.out[0]) + first * w.rows * el);
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
      const step::Buffer& w = e.buffer(op.in[1]);
      const std::uint64_t chunk = e.buffer(op.in[op.kind == OpKind::kHeadLoss ? 4 : 3]).rows;
      for (std::uint64_t part : {std::min(chunk, tokens), tokens % chunk}) {
        if (part == 0) continue;
        e.gemm.prepare(shape(e, Product::kForward, part, w));
        if (op.kind == OpKind::kHeadEval) continue;
        GemmShape dw = shape(e, Product::kDw, part, w);
        for (bool add : {false, true}) dw.add = add, e.gemm.prepare(dw);
        e.gemm.prepare(shape(e, Product::kDx, part, w));
      }
    } else if (op.kind == OpKind::kHeadBwd) {
      const step::Buffer& w = e.buffer(op.in[2]);
      GemmShape dw = shape(e, Product::kDw, rows, w);
      for (bool add : {false, true}) dw.add = add, e.gemm.prepare(dw);
      e.gemm.prepare(shape(e, Product::kDx, rows, w));
    }
  }
}

template void queue_head<float>(Exec&, const step::Op&);
template void queue_head<Bf16>(Exec&, const step::Op&);

}  // namespace trainhost::cuda
