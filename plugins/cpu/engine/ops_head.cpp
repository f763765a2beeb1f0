// The language-model head: logits, cross-entropy and their gradients, a chunk of tokens at a time, so that
// only the logits of one chunk are materialised. Losses are summed in double, in a fixed order.
#include <algorithm>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/exec.hpp"
#include "plugins/cpu/engine/product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

struct Head {
  std::uint64_t h, v, chunk;  // hidden, vocabulary, rows of a chunk of logits
  float *hf, *logits, *grad;  // grad: null in evaluation
  const float* w;
  const std::int32_t* targets;
};

// logits[rows, V] = hf[first.., H] w^T
void chunk_logits(Exec& e, const Head& c, std::uint64_t first, std::uint64_t rows) {
  product_with_weight(e, Right::kTransposed, rows, c.v, c.h, c.hf + first * c.h, c.w, false, c.logits,
                      [](Range, Range) {});
}

double chunk_loss(Exec& e, const Head& c, std::uint64_t first, std::uint64_t rows) {
  const std::uint32_t parts = Exec::row_parts(rows, c.v);
  e.pool.run(parts, [&](std::uint32_t i, std::uint32_t) {
    Range r = part(rows, i, parts);
    double loss = 0.0;
    for (std::uint64_t t = r.begin; t < r.end; ++t)
      loss += e.kernels.cross_entropy(c.v, c.logits + t * c.v, c.targets[first + t], e.step.loss_scale,
                                      c.grad != nullptr);
    e.partials[i] = loss;
  });
  double loss = 0.0;
  for (std::uint32_t i = 0; i < parts; ++i) loss += e.partials[i];
  return loss;
}

// First the weight's gradient, which reads hf; then hf is overwritten with its gradient.
void chunk_gradients(Exec& e, const Head& c, std::uint64_t first, std::uint64_t rows, bool overwrite) {
  float* hf = c.hf + first * c.h;
  weight_gradient(e, c.v, c.h, rows, c.logits, hf, overwrite, c.grad, 0, [](std::uint32_t) {});
  product_with_weight(e, Right::kPlain, rows, c.h, c.v, c.logits, c.w, false, hf, [](Range, Range) {});
}

}  // namespace

void run_head(Exec& e, const step::Op& op) {
  const bool train = op.kind == step::OpKind::kHeadLoss;
  const step::BufferId logits = op[head::logits(op.kind)], scalars = op[head::scalars(op.kind)];
  Head c{};
  const step::Buffer& weight = e.buffer(op[head::kHead]);
  c.h = weight.cols, c.v = weight.rows, c.chunk = e.buffer(logits).rows;
  c.hf = e.f32(op[head::kHf]), c.w = e.f32(op[head::kHead]), c.logits = e.f32(logits);
  c.grad = train ? e.f32(op[head_loss::kGradHead]) : nullptr;
  c.targets = e.step.targets;
  double loss = 0.0;
  for (std::uint64_t first = 0; first < e.step.rows; first += c.chunk) {
    const std::uint64_t rows = std::min(c.chunk, e.step.rows - first);
    chunk_logits(e, c, first, rows);
    loss += chunk_loss(e, c, first, rows);
    if (train) chunk_gradients(e, c, first, rows, first == 0 && e.overwrite(op));
  }
  e.f64(scalars)[train ? step::kLossSum : step::kEvalLossSum] += loss;
}

void run_head_logits(Exec& e, const step::Op& op) {
  const std::uint64_t v = e.buffer(op[head_logits::kHead]).rows, h = e.buffer(op[head_logits::kHead]).cols;
  const float *hf = e.f32(op[head_logits::kHf]), *w = e.f32(op[head_logits::kHead]);
  float* logits = e.f32(op[head_logits::kLogits]);
  e.over_rows(v, h, [&](std::uint64_t first, std::uint64_t rows) {
    e.kernels.gemv(rows, h, w + first * h, hf, false, logits + first);
  });
}

}  // namespace trainhost::cpu
