// y = x w^T (+ bias) (+ residual) and its two gradients. M tokens, n outputs, k inputs.
#include <algorithm>
#include <cstring>

#include "plugins/cpu/engine/exec.hpp"
#include "plugins/cpu/engine/product.hpp"

namespace trainhost::cpu {
namespace {

struct Tile {
  Range rows, cols;
};
Tile tile(const Grid& g, std::uint32_t i, std::uint64_t m, std::uint64_t n) { return {g.row_range(i, m), g.col_range(i, n)}; }

// Generation: one row. Memory-bound, so the weight's rows are dealt out.
void linear_row(Exec& e, std::uint64_t n, std::uint64_t k, const float* x, const float* w, const float* bias,
                const float* residual, float* y) {
  e.over_rows(n, k, [&](std::uint64_t j, std::uint64_t count) {
    for (std::uint64_t i = j; i < j + count; ++i) y[i] = (residual ? residual[i] : 0.0f) + (bias ? bias[i] : 0.0f);
    e.kernels.gemv(count, k, w + j * k, x, true, y + j);
  });
}

}  // namespace

void run_linear(Exec& e, const plan::Op& op) {
  const plan::Buffer& wb = e.buffer(op.in[1]);
  const std::uint64_t m = e.step.rows, n = wb.rows, k = wb.cols;
  const float *x = e.f32(op.in[0]), *w = e.f32(op.in[1]), *bias = e.f32(op.in[2]), *residual = e.f32(op.in[3]);
  float* y = e.f32(op.out[0]);
  if (m == 1) return linear_row(e, n, k, x, w, bias, residual, y);
  const Grid g = grid(m, n, k);
  e.pool.run(g.tiles(), [&](std::uint32_t i, std::uint32_t) {
    Tile t = tile(g, i, m, n);
    float* c = y + t.rows.begin * n + t.cols.begin;
    if (residual || bias) {
      for (std::uint64_t r = 0; r < t.rows.size(); ++r) {
        const float* from = residual ? residual + (t.rows.begin + r) * n : bias;
        std::memcpy(c + r * n, from + t.cols.begin, t.cols.size() * sizeof(float));
      }
      if (residual && bias) e.kernels.add_bias(t.rows.size(), t.cols.size(), bias + t.cols.begin, c, n);
    }
    product_nt(t.rows.size(), t.cols.size(), k, x + t.rows.begin * k, k, w + t.cols.begin * k, k,
               residual || bias ? 1.0f : 0.0f, c, n);
  });
}

void run_linear_dx(Exec& e, const plan::Op& op) {
  const plan::Buffer& wb = e.buffer(op.in[1]);
  const std::uint64_t m = e.step.rows, n = wb.rows, k = wb.cols;
  const float *dy = e.f32(op.in[0]), *w = e.f32(op.in[1]);
  float* dx = e.f32(op.out[0]);
  const Grid g = grid(m, k, n);
  e.pool.run(g.tiles(), [&](std::uint32_t i, std::uint32_t) {
    Tile t = tile(g, i, m, k);
    product_nn(t.rows.size(), t.cols.size(), n, dy + t.rows.begin * n, n, w + t.cols.begin, k, 0.0f,
               dx + t.rows.begin * k + t.cols.begin, k);
  });
}

// Each tile of grad_w sums over all tokens itself; the bias gradient is a sum over tokens, a few columns a task.
void run_linear_dw(Exec& e, const plan::Op& op) {
  const plan::Buffer& gb = e.buffer(op.in[2]);
  const std::uint64_t m = e.step.rows, n = gb.rows, k = gb.cols;
  const float *dy = e.f32(op.in[0]), *x = e.f32(op.in[1]);
  float *gw = e.f32(op.in[2]), *gbias = e.f32(op.in[3]);
  const bool overwrite = e.overwrite(op);
  constexpr std::uint64_t kBiasColumns = 64;
  const Grid g = grid_dw(n, k, m);
  const std::uint32_t bias_tasks = gbias ? static_cast<std::uint32_t>((n + kBiasColumns - 1) / kBiasColumns) : 0;
  e.pool.run(g.tiles() + bias_tasks, [&](std::uint32_t i, std::uint32_t) {
    if (i < g.tiles()) {
      Tile t = tile(g, i, n, k);
      product_tn(t.rows.size(), t.cols.size(), m, dy + t.rows.begin, n, x + t.cols.begin, k, overwrite ? 0.0f : 1.0f,
                 gw + t.rows.begin * k + t.cols.begin, k);
      return;
    }
    std::uint64_t c = (i - g.tiles()) * kBiasColumns, count = std::min(kBiasColumns, n - c);
    if (overwrite) std::memset(gbias + c, 0, count * sizeof(float));
    e.kernels.column_sums(m, count, dy + c, n, gbias + c);
  });
}

}  // namespace trainhost::cpu
