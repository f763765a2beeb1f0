// y = x w^T (+ bias) (+ residual) and its two gradients. M tokens, n outputs, k inputs.
#include <algorithm>
#include <cstring>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/exec.hpp"
#include "plugins/cpu/engine/product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

// Generation: one row. Memory-bound, so the rows of the weight are divided among the threads.
void linear_row(Exec& e, std::uint64_t n, std::uint64_t k, const float* x, const float* w, const float* bias,
                const float* residual, float* y) {
  e.over_rows(n, k, [&](std::uint64_t j, std::uint64_t count) {
    for (std::uint64_t i = j; i < j + count; ++i)
      y[i] = (residual ? residual[i] : 0.0f) + (bias ? bias[i] : 0.0f);
    e.kernels.gemv(count, k, w + j * k, x, true, y + j);
  });
}

}  // namespace

void run_linear(Exec& e, const step::Op& op) {
  const step::Buffer& wb = e.buffer(op[linear::kWeight]);
  const std::uint64_t m = e.step.rows, n = wb.rows, k = wb.cols;
  const float *x = e.f32(op[linear::kX]), *w = e.f32(op[linear::kWeight]), *bias = e.f32(op[linear::kBias]),
              *residual = e.f32(op[linear::kResidual]);
  float* y = e.f32(op[linear::kY]);
  if (m == 1) return linear_row(e, n, k, x, w, bias, residual, y);
  const bool add = residual || bias;
  product_with_weight(e, Right::kTransposed, m, n, k, x, w, add, y, [&](Range rows, Range cols) {
    if (!add) return;
    for (std::uint64_t r = rows.begin; r < rows.end; ++r)
      std::memcpy(y + r * n + cols.begin, (residual ? residual + r * n : bias) + cols.begin,
                  cols.size() * sizeof(float));
    if (residual && bias)
      e.kernels.add_bias(rows.size(), cols.size(), bias + cols.begin, y + rows.begin * n + cols.begin, n);
  });
}

void run_linear_dx(Exec& e, const step::Op& op) {
  const step::Buffer& wb = e.buffer(op[linear_dx::kWeight]);
  const std::uint64_t m = e.step.rows, n = wb.rows, k = wb.cols;
  const float *dy = e.f32(op[linear_dx::kDy]), *w = e.f32(op[linear_dx::kWeight]);
  float* dx = e.f32(op[linear_dx::kDx]);
  product_with_weight(e, Right::kPlain, m, k, n, dy, w, false, dx, [](Range, Range) {});
}

// The bias gradient is a sum over tokens as well, with a few columns per task.
void run_linear_dw(Exec& e, const step::Op& op) {
  const step::Buffer& gb = e.buffer(op[linear_dw::kGradWeight]);
  const std::uint64_t m = e.step.rows, n = gb.rows, k = gb.cols;
  const float *dy = e.f32(op[linear_dw::kDy]), *x = e.f32(op[linear_dw::kX]);
  float *gw = e.f32(op[linear_dw::kGradWeight]), *gbias = e.f32(op[linear_dw::kGradBias]);
  const bool overwrite = e.overwrite(op);
  constexpr std::uint64_t kBiasColumns = 64;
  const std::uint32_t bias_tasks =
      gbias ? static_cast<std::uint32_t>((n + kBiasColumns - 1) / kBiasColumns) : 0;
  weight_gradient(e, n, k, m, dy, x, overwrite, gw, bias_tasks, [&](std::uint32_t i) {
    const std::uint64_t c = i * kBiasColumns, count = std::min(kBiasColumns, n - c);
    if (overwrite) std::memset(gbias + c, 0, count * sizeof(float));
    e.kernels.column_sums(m, count, dy + c, n, gbias + c);
  });
}

}  // namespace trainhost::cpu
