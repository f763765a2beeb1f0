// The language-model head: logits, cross-entropy and their gradients, a chunk of tokens at a time, so that
// only the logits of one chunk are materialised. Losses are summed in double, in a fixed order. The products:
// weight_product.hpp.
#include <algorithm>
#include <cmath>

#include "core/base/bf16.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "plugins/cpu/engine/dora_product.hpp"
#include "plugins/cpu/engine/lora_product.hpp"
#include "plugins/cpu/engine/op_context.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

/// Operands of the head operations; T: float or Bf16.
template <class T>
struct Head {
  std::uint64_t h, v, chunk;  // hidden, vocabulary, rows of a chunk of logits
  T *hf, *logits;
  float* grad;  // null in evaluation and if the head is frozen
  bool train;   // logits become their gradient
  const T* w;
  const std::int32_t* targets;
  // Of a TP rank: its vocabulary begins at this token; the statistics of all ranks, [ranks * rows_of_stats,
  // 3].
  std::int32_t first_token;
  const float* stats;
  std::uint64_t ranks, rows_of_stats;
  // The adapter, if blocks.count > 0: u becomes its gradient.
  AdapterBlocks blocks;
  T* u;
  const T* b;
  float* grad_b;
  // Its DoRA, if scale is not null: factors and 1 / n of the logits; the logits before the magnitudes, which
  // become their gradient; the input of the adapter after dropout, which becomes its gradient.
  const float* scale;
  T *unscaled, *dropped;
  float* grad_magnitude;

  /// The target of a token in the part of this rank; negative if another rank has it, or if it is not
  /// counted.
  std::int32_t own_target(std::uint64_t token) const {
    const std::int32_t t = targets[token] - first_token;
    return targets[token] >= 0 && t >= 0 && static_cast<std::uint64_t>(t) < v ? t : -1;
  }
};

float f32_of(float x) { return x; }
float f32_of(Bf16 x) { return f32_from_bf16(x); }

/// The gradient at the target: `p` is that of another token, from its exponential. In bf16 not computed from
/// the rounded p: the difference is small where the model is right.
void subtract_target(float* row, float, float scale) { *row -= scale; }
void subtract_target(Bf16* row, float p, float scale) { *row = bf16_from_f32(p - scale); }

/// Loss of a token from the statistics of all TP ranks, in their order; its row of logits becomes the
/// gradient of this rank's part.
template <class T>
double loss_of_parts(const RowKernels<T>& kernels, const Head<T>& c, std::uint64_t token, T* row,
                     float scale) {
  if (c.targets[token] < 0) {
    if (c.train) std::fill_n(row, c.v, T{});
    return 0.0;
  }
  const auto of = [&](std::uint64_t rank) { return c.stats + (rank * c.rows_of_stats + token) * 3; };
  float top = of(0)[0];
  for (std::uint64_t r = 1; r < c.ranks; ++r) top = std::max(top, of(r)[0]);
  double total = 0.0, at_target = 0.0;
  for (std::uint64_t r = 0; r < c.ranks; ++r) {
    total +=
        static_cast<double>(of(r)[1]) * std::exp(static_cast<double>(of(r)[0]) - static_cast<double>(top));
    at_target += static_cast<double>(of(r)[2]);
  }
  if (c.train) {
    const auto factor = static_cast<float>(static_cast<double>(scale) / total);
    const std::int32_t target = c.own_target(token);
    const float p = target >= 0 ? std::exp(f32_of(row[target]) - top) * factor : 0.0f;
    kernels.scaled_exp(c.v, row, top, factor);
    if (target >= 0) subtract_target(row + target, p, scale);
  }
  return std::log(total) + (static_cast<double>(top) - at_target);
}

// to[rows, V] = x[first.., H] w^T
void product_of_chunk(OpContext& ctx, const Head<Bf16>& c, const Bf16* x, std::uint64_t first,
                      std::uint64_t rows, Bf16* to) {
  bf16_product(ctx, rows, c.v, c.h, {x + first * c.h, c.h, false}, {c.w, c.h, false}, {to, c.v});
}
void product_of_chunk(OpContext& ctx, const Head<float>& c, const float* x, std::uint64_t first,
                      std::uint64_t rows, float* to) {
  product_with_weight(ctx, Right::kTransposed, rows, c.v, c.h, x + first * c.h, c.w, {}, to);
}

/// The same, and + scale * u B^T of the adapter.
template <class T>
void adapted_chunk(OpContext& ctx, const Head<T>& c, const T* x, std::uint64_t first, std::uint64_t rows,
                   T* to) {
  product_of_chunk(ctx, c, x, first, rows, to);
  if (!c.blocks.count) return;
  const T* u = c.u + first * c.blocks.inner();
  add_lora_b(ctx, c.blocks, rows, u, c.b, to);
}

/// The logits of rows from `first` on.
template <class T>
void chunk_logits(OpContext& ctx, const Head<T>& c, std::uint64_t first, std::uint64_t rows) {
  const T* none = nullptr;
  if (c.dropped) {
    adapted_chunk<T>(ctx, c, c.hf, first, rows, c.logits);
    adapted_chunk<T>(ctx, c, c.dropped, first, rows, c.unscaled);
    return multiply_by_factors<T>(ctx, rows, c.v, c.unscaled, c.scale, 1.0f, none, c.logits, c.logits);
  }
  T* const sum = c.unscaled ? c.unscaled : c.logits;
  adapted_chunk<T>(ctx, c, c.hf, first, rows, sum);
  if (c.scale) multiply_by_factors<T>(ctx, rows, c.v, sum, c.scale, 0.0f, none, none, c.logits);
}

/// Gradients of B and of u from those of the sum to which the adapter has added.
template <class T>
void adapter_gradients(OpContext& ctx, const Head<T>& c, std::uint64_t first, std::uint64_t rows,
                       const T* d_sum, bool overwrite) {
  if (!c.blocks.count) return;
  T* u = c.u + first * c.blocks.inner();
  lora_b_weight_gradient(ctx, c.blocks, rows, d_sum, static_cast<const T*>(u), overwrite, c.grad_b);
  lora_b_input_gradient(ctx, c.blocks, rows, d_sum, c.b, u);
}

template <class T>
double loss_of_token(OpContext& ctx, const Head<T>& c, std::uint64_t token, T* row) {
  if (c.stats) return loss_of_parts(ctx.rows<T>(), c, token, row, ctx.step.loss_scale);
  return ctx.rows<T>().cross_entropy(c.v, row, c.targets[token], ctx.step.loss_scale, c.train);
}

template <class T>
double chunk_loss(OpContext& ctx, const Head<T>& c, std::uint64_t first, std::uint64_t rows) {
  const std::uint32_t parts = OpContext::row_parts(rows, c.v);
  ctx.pool.run(parts, [&](std::uint32_t i, std::uint32_t) {
    Range r = part(rows, i, parts);
    double loss = 0.0;
    for (std::uint64_t t = r.begin; t < r.end; ++t)
      loss += loss_of_token(ctx, c, first + t, c.logits + t * c.v);
    ctx.partials[i] = loss;
  });
  double loss = 0.0;
  for (std::uint32_t i = 0; i < parts; ++i) loss += ctx.partials[i];
  return loss;
}

std::int32_t first_token(const OpContext& ctx, std::uint64_t part) {
  return static_cast<std::int32_t>(ctx.tensor_rank() * part);
}

// First the weight's gradient, which reads hf; then hf is overwritten with its gradient.
template <class T>
void chunk_gradients(OpContext& ctx, const Head<T>& c, std::uint64_t first, std::uint64_t rows,
                     bool overwrite) {
  T* hf = c.hf + first * c.h;
  const T* d_logits = c.logits;
  if (c.grad)
    weight_gradient(ctx, c.v, c.h, rows, d_logits, static_cast<const T*>(hf), overwrite, c.grad, 0,
                    [](std::uint32_t) {});
  if (!c.scale) {
    adapter_gradients(ctx, c, first, rows, d_logits, overwrite);
    return input_gradient(ctx, rows, c.v, c.h, d_logits, c.w, hf);
  }
  // With dropout hf has the gradient of its own product, and the dropped input that of the other one, which
  // takes the place of the logits.
  if (c.dropped) input_gradient(ctx, rows, c.v, c.h, d_logits, c.w, hf);
  magnitude_gradient<T>(ctx, c.blocks, rows, d_logits, c.scale, overwrite, c.unscaled,
                        c.dropped ? c.logits : nullptr, c.grad_magnitude);
  adapter_gradients(ctx, c, first, rows, static_cast<const T*>(c.unscaled), overwrite);
  const T* d_product = c.dropped ? c.logits : c.unscaled;
  input_gradient(ctx, rows, c.v, c.h, d_product, c.w, c.dropped ? c.dropped + first * c.h : hf);
}

/// The operands of the adapter, where the head has one.
template <class T>
void set_adapter(OpContext& ctx, const step::Op& op, Head<T>& c) {
  const step::BufferId b = op[head::b(op.kind)];
  if (b == step::kNoBuffer) return;
  c.blocks = step::lora_blocks(ctx.program, b);
  c.b = ctx.at<T>(b), c.u = ctx.at<T>(op[head::u(op.kind)]);
  const bool train = op.kind == step::OpKind::kHeadLoss;
  c.grad_b = train ? ctx.f32(op[head_loss::kGradB]) : nullptr;
  c.scale = ctx.f32(op[head::scale(op.kind)]);
  if (!c.scale || op.kind == step::OpKind::kHeadEval) return;
  c.unscaled = ctx.at<T>(op[head::unscaled(op.kind)]), c.dropped = ctx.at<T>(op[head::dropped(op.kind)]);
  c.grad_magnitude = train ? ctx.f32(op[head_loss::kGradMagnitude]) : nullptr;
}

template <class T>
void head_rows(OpContext& ctx, const step::Op& op) {
  const bool train = op.kind == step::OpKind::kHeadLoss;
  const step::BufferId logits = op[head::logits(op.kind)], scalars = op[head::scalars(op.kind)];
  Head<T> c{};
  const step::Buffer& weight = ctx.buffer(op[head::kHead]);
  c.h = weight.cols, c.v = weight.rows, c.chunk = ctx.buffer(logits).rows;
  c.hf = ctx.at<T>(op[head::kHf]), c.w = ctx.at<T>(op[head::kHead]), c.logits = ctx.at<T>(logits);
  c.train = train, c.grad = train ? ctx.f32(op[head_loss::kGradHead]) : nullptr;
  c.targets = ctx.step.targets;
  set_adapter(ctx, op, c);
  if (const step::BufferId stats = op[head::stats(op.kind)]; stats != step::kNoBuffer) {
    c.ranks = ctx.program.run.parallel.tensor, c.rows_of_stats = ctx.buffer(stats).rows / c.ranks;
    c.stats = ctx.f32(stats), c.first_token = first_token(ctx, c.v);
  }
  double loss = 0.0;
  for (std::uint64_t first = 0; first < ctx.step.rows; first += c.chunk) {
    const std::uint64_t rows = std::min(c.chunk, ctx.step.rows - first);
    chunk_logits(ctx, c, first, rows);
    loss += chunk_loss(ctx, c, first, rows);
    if (train) chunk_gradients(ctx, c, first, rows, first == 0 && ctx.overwrite(op));
  }
  ctx.f64(scalars)[train ? step::kLossSum : step::kEvalLossSum] += loss;
}

template <class T>
void head_stats_rows(OpContext& ctx, const step::Op& op) {
  Head<T> c{};
  const step::Buffer& weight = ctx.buffer(op[head_stats::kHead]);
  c.h = weight.cols, c.v = weight.rows, c.chunk = ctx.buffer(op[head_stats::kLogits]).rows;
  c.hf = ctx.at<T>(op[head_stats::kHf]), c.w = ctx.at<T>(op[head_stats::kHead]);
  c.logits = ctx.at<T>(op[head_stats::kLogits]), c.targets = ctx.step.targets;
  c.first_token = first_token(ctx, c.v);
  set_adapter(ctx, op, c);
  const step::Buffer& stats = ctx.buffer(op[head_stats::kStats]);
  float* own = ctx.f32(op[head_stats::kStats]) +
               ctx.tensor_rank() * (stats.rows / ctx.program.run.parallel.tensor) * stats.cols;
  for (std::uint64_t first = 0; first < ctx.step.rows; first += c.chunk) {
    const std::uint64_t rows = std::min(c.chunk, ctx.step.rows - first);
    chunk_logits(ctx, c, first, rows);
    ctx.over_rows(rows, c.v, [&](std::uint64_t begin, std::uint64_t count) {
      for (std::uint64_t t = begin; t < begin + count; ++t) {
        T* row = c.logits + t * c.v;
        float* to = own + (first + t) * 3;
        const std::int32_t target = c.own_target(first + t);
        to[2] = target >= 0 ? f32_of(row[target]) : 0.0f;
        to[1] = ctx.rows<T>().row_sum_exp(c.v, row, to);
      }
    });
  }
}

}  // namespace

void run_head_stats(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { head_stats_rows<decltype(stored)>(ctx, op); });
}

void run_head(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { head_rows<decltype(stored)>(ctx, op); });
}

void run_head_logits(OpContext& ctx, const step::Op& op) {
  const std::uint64_t v = ctx.buffer(op[head_logits::kHead]).rows,
                      h = ctx.buffer(op[head_logits::kHead]).cols;
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    const T *hf = ctx.at<T>(op[head_logits::kHf]), *w = ctx.at<T>(op[head_logits::kHead]);
    T* logits = ctx.at<T>(op[head_logits::kLogits]) + ctx.tensor_rank() * v;  // of a TP rank: its part
    row_product(ctx, v, h, hf, w, static_cast<const T*>(nullptr), static_cast<const T*>(nullptr), logits);
    if (const step::BufferId b = op[head_logits::kB]; b != step::kNoBuffer)
      add_lora_b(ctx, step::lora_blocks(ctx.program, b), 1,
                 static_cast<const T*>(ctx.at<T>(op[head_logits::kU])), static_cast<const T*>(ctx.at<T>(b)),
                 logits);
    if (const float* scale = ctx.f32(op[head_logits::kScale]))
      multiply_by_factors<T>(ctx, 1, v, logits, scale, 0.0f, nullptr, nullptr, logits);
  });
}

}  // namespace trainhost::cpu
