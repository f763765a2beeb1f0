// The language-model head: logits, cross-entropy and their gradients, a chunk of tokens at a time, so that
// only the logits of one chunk are materialised. Losses are summed in double, in a fixed order. The products:
// weight_product.hpp.
#include <algorithm>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

/// Operands of the head operations.
struct Head {
  std::uint64_t h, v, chunk;  // hidden, vocabulary, rows of a chunk of logits
  float *hf, *logits, *grad;  // grad: null in evaluation and if the head is frozen
  bool train;                 // logits become their gradient
  const float* w;
  const std::int32_t* targets;
};

// logits[rows, V] = hf[first.., H] w^T
void chunk_logits(OpContext& ctx, const Head& c, std::uint64_t first, std::uint64_t rows) {
  product_with_weight(ctx, Right::kTransposed, rows, c.v, c.h, c.hf + first * c.h, c.w, false, c.logits,
                      [](Range, Range) {});
}

double chunk_loss(OpContext& ctx, const Head& c, std::uint64_t first, std::uint64_t rows) {
  const std::uint32_t parts = OpContext::row_parts(rows, c.v);
  ctx.pool.run(parts, [&](std::uint32_t i, std::uint32_t) {
    Range r = part(rows, i, parts);
    double loss = 0.0;
    for (std::uint64_t t = r.begin; t < r.end; ++t)
      loss += ctx.kernels.cross_entropy(c.v, c.logits + t * c.v, c.targets[first + t], ctx.step.loss_scale,
                                        c.train);
    ctx.partials[i] = loss;
  });
  double loss = 0.0;
  for (std::uint32_t i = 0; i < parts; ++i) loss += ctx.partials[i];
  return loss;
}

// First the weight's gradient, which reads hf; then hf is overwritten with its gradient.
void chunk_gradients(OpContext& ctx, const Head& c, std::uint64_t first, std::uint64_t rows, bool overwrite) {
  float* hf = c.hf + first * c.h;
  if (c.grad) weight_gradient(ctx, c.v, c.h, rows, c.logits, hf, overwrite, c.grad, 0, [](std::uint32_t) {});
  product_with_weight(ctx, Right::kPlain, rows, c.h, c.v, c.logits, c.w, false, hf, [](Range, Range) {});
}

}  // namespace

void run_head(OpContext& ctx, const step::Op& op) {
  const bool train = op.kind == step::OpKind::kHeadLoss;
  const step::BufferId logits = op[head::logits(op.kind)], scalars = op[head::scalars(op.kind)];
  Head c{};
  const step::Buffer& weight = ctx.buffer(op[head::kHead]);
  c.h = weight.cols, c.v = weight.rows, c.chunk = ctx.buffer(logits).rows;
  c.hf = ctx.f32(op[head::kHf]), c.w = ctx.f32(op[head::kHead]), c.logits = ctx.f32(logits);
  c.train = train, c.grad = train ? ctx.f32(op[head_loss::kGradHead]) : nullptr;
  c.targets = ctx.step.targets;
  double loss = 0.0;
  for (std::uint64_t first = 0; first < ctx.step.rows; first += c.chunk) {
    const std::uint64_t rows = std::min(c.chunk, ctx.step.rows - first);
    chunk_logits(ctx, c, first, rows);
    loss += chunk_loss(ctx, c, first, rows);
    if (train) chunk_gradients(ctx, c, first, rows, first == 0 && ctx.overwrite(op));
  }
  ctx.f64(scalars)[train ? step::kLossSum : step::kEvalLossSum] += loss;
}

void run_head_logits(OpContext& ctx, const step::Op& op) {
  const std::uint64_t v = ctx.buffer(op[head_logits::kHead]).rows,
                      h = ctx.buffer(op[head_logits::kHead]).cols;
  const float *hf = ctx.f32(op[head_logits::kHf]), *w = ctx.f32(op[head_logits::kHead]);
  float* logits = ctx.f32(op[head_logits::kLogits]);
  ctx.over_rows(v, h, [&](std::uint64_t first, std::uint64_t rows) {
    ctx.kernels.gemv(rows, h, w + first * h, hf, false, logits + first);
  });
}

}  // namespace trainhost::cpu
