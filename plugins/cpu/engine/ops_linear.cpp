// Linear layers: y = x w^T (+ bias) (+ residual) and the gradients of x, w and bias. M tokens, n outputs, k
// inputs. Maps operands; division into tiles and the choice of the library: weight_product.hpp.
#include <algorithm>
#include <cstring>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

// Generation: one row. Memory-bound, so the rows of the weight are divided among the threads.
void linear_row(OpContext& ctx, std::uint64_t n, std::uint64_t k, const float* x, const float* w,
                const float* bias, const float* residual, float* y) {
  ctx.over_rows(n, k, [&](std::uint64_t j, std::uint64_t count) {
    for (std::uint64_t i = j; i < j + count; ++i)
      y[i] = (residual ? residual[i] : 0.0f) + (bias ? bias[i] : 0.0f);
    ctx.kernels.gemv(count, k, w + j * k, x, true, y + j);
  });
}

}  // namespace

void run_linear(OpContext& ctx, const step::Op& op) {
  const step::Buffer& wb = ctx.buffer(op[linear::kWeight]);
  const std::uint64_t m = ctx.step.rows, n = wb.rows, k = wb.cols;
  const float *x = ctx.f32(op[linear::kX]), *w = ctx.f32(op[linear::kWeight]),
              *bias = ctx.f32(op[linear::kBias]), *residual = ctx.f32(op[linear::kResidual]);
  float* y = ctx.f32(op[linear::kY]);
  if (m == 1) return linear_row(ctx, n, k, x, w, bias, residual, y);
  const bool add = residual || bias;
  product_with_weight(ctx, Right::kTransposed, m, n, k, x, w, add, y, [&](Range rows, Range cols) {
    if (!add) return;
    for (std::uint64_t r = rows.begin; r < rows.end; ++r)
      std::memcpy(y + r * n + cols.begin, (residual ? residual + r * n : bias) + cols.begin,
                  cols.size() * sizeof(float));
    if (residual && bias)
      ctx.kernels.add_bias(rows.size(), cols.size(), bias + cols.begin, y + rows.begin * n + cols.begin, n);
  });
}

void run_linear_dx(OpContext& ctx, const step::Op& op) {
  const step::Buffer& wb = ctx.buffer(op[linear_dx::kWeight]);
  const std::uint64_t m = ctx.step.rows, n = wb.rows, k = wb.cols;
  const float *dy = ctx.f32(op[linear_dx::kDy]), *w = ctx.f32(op[linear_dx::kWeight]);
  float* dx = ctx.f32(op[linear_dx::kDx]);
  product_with_weight(ctx, Right::kPlain, m, k, n, dy, w, false, dx, [](Range, Range) {});
}

void run_linear_dx_add(OpContext& ctx, const step::Op& op) {
  const step::Buffer& wb = ctx.buffer(op[linear_dx_add::kWeight]);
  product_with_weight(ctx, Right::kPlain, ctx.step.rows, wb.cols, wb.rows, ctx.f32(op[linear_dx_add::kDy]),
                      ctx.f32(op[linear_dx_add::kWeight]), true, ctx.f32(op[linear_dx_add::kDx]),
                      [](Range, Range) {});
}

// The bias gradient is a sum over tokens as well, with a few columns per task.
void run_linear_dw(OpContext& ctx, const step::Op& op) {
  const step::Buffer& gb = ctx.buffer(op[linear_dw::kGradWeight]);
  const std::uint64_t m = ctx.step.rows, n = gb.rows, k = gb.cols;
  const float *dy = ctx.f32(op[linear_dw::kDy]), *x = ctx.f32(op[linear_dw::kX]);
  float *gw = ctx.f32(op[linear_dw::kGradWeight]), *gbias = ctx.f32(op[linear_dw::kGradBias]);
  const bool overwrite = ctx.overwrite(op);
  constexpr std::uint64_t kBiasColumns = 64;
  const std::uint32_t bias_tasks =
      gbias ? static_cast<std::uint32_t>((n + kBiasColumns - 1) / kBiasColumns) : 0;
  weight_gradient(ctx, n, k, m, dy, x, overwrite, gw, bias_tasks, [&](std::uint32_t i) {
    const std::uint64_t c = i * kBiasColumns, count = std::min(kBiasColumns, n - c);
    if (overwrite) std::memset(gbias + c, 0, count * sizeof(float));
    ctx.kernels.column_sums(m, count, dy + c, n, gbias + c);
  });
}

}  // namespace trainhost::cpu
