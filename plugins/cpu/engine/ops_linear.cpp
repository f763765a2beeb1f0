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

// y = x w^T (+ bias) (+ residual)
void linear_forward(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, const Bf16* x,
                    const Bf16* w, const Bf16* bias, const Bf16* residual, Bf16* y) {
  bf16_product(ctx, m, n, k, {x, k, false}, {w, k, false}, {y, n, bias, residual});
}
void linear_forward(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* x,
                    const float* w, const float* bias, const float* residual, float* y) {
  product_with_weight(ctx, Right::kTransposed, m, n, k, x, w, {residual, bias}, y);
}

}  // namespace

void run_linear(OpContext& ctx, const step::Op& op) {
  const step::Buffer& wb = ctx.buffer(op[linear::kWeight]);
  const std::uint64_t m = ctx.step.rows, n = wb.rows, k = wb.cols;
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    const T *x = ctx.at<T>(op[linear::kX]), *w = ctx.at<T>(op[linear::kWeight]),
            *bias = ctx.at<T>(op[linear::kBias]), *residual = ctx.at<T>(op[linear::kResidual]);
    T* y = ctx.at<T>(op[linear::kY]);
    if (m == 1)
      row_product(ctx, n, k, x, w, bias, residual, y);
    else
      linear_forward(ctx, m, n, k, x, w, bias, residual, y);
  });
}

void run_linear_dx(OpContext& ctx, const step::Op& op) {
  const step::Buffer& wb = ctx.buffer(op[linear_dx::kWeight]);
  const std::uint64_t m = ctx.step.rows, n = wb.rows, k = wb.cols;
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    input_gradient(ctx, m, n, k, ctx.at<T>(op[linear_dx::kDy]), ctx.at<T>(op[linear_dx::kWeight]),
                   ctx.at<T>(op[linear_dx::kDx]));
  });
}

void run_linear_dx_add(OpContext& ctx, const step::Op& op) {
  const step::Buffer& wb = ctx.buffer(op[linear_dx_add::kWeight]);
  const std::uint64_t m = ctx.step.rows, n = wb.rows, k = wb.cols;
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    const T *dy = ctx.at<T>(op[linear_dx_add::kDy]), *w = ctx.at<T>(op[linear_dx_add::kWeight]);
    T* dx = ctx.at<T>(op[linear_dx_add::kDx]);
    if constexpr (std::is_same_v<T, float>)
      product_with_weight(ctx, Right::kPlain, m, k, n, dy, w, {dx}, dx);
    else
      bf16_product(ctx, m, k, n, {dy, n, false}, {w, k, true}, {dx, k, nullptr, dx});
  });
}

// The bias gradient is a sum over tokens as well, with a few columns per task.
void run_linear_dw(OpContext& ctx, const step::Op& op) {
  const step::Buffer& gb = ctx.buffer(op[linear_dw::kGradWeight]);
  const std::uint64_t m = ctx.step.rows, n = gb.rows, k = gb.cols;
  float *gw = ctx.f32(op[linear_dw::kGradWeight]), *gbias = ctx.f32(op[linear_dw::kGradBias]);
  const bool overwrite = ctx.overwrite(op);
  constexpr std::uint64_t kBiasColumns = 64;
  const std::uint32_t bias_tasks =
      gbias ? static_cast<std::uint32_t>((n + kBiasColumns - 1) / kBiasColumns) : 0;
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    const T *dy = ctx.at<T>(op[linear_dw::kDy]), *x = ctx.at<T>(op[linear_dw::kX]);
    weight_gradient(ctx, n, k, m, dy, x, overwrite, gw, bias_tasks, [&](std::uint32_t i) {
      const std::uint64_t c = i * kBiasColumns, count = std::min(kBiasColumns, n - c);
      if (overwrite) std::memset(gbias + c, 0, count * sizeof(float));
      ctx.rows<T>().column_sums(m, count, dy + c, n, gbias + c);
    });
  });
}

}  // namespace trainhost::cpu
