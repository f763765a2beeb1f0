// Grids of tiles, packing of weights, and the tasks of a weight's gradient. The tile sizes were chosen by
// measurement (plugins/cpu/README.md). The calls that combine them are templates in weight_product.hpp.
#include "plugins/cpu/engine/weight_product.hpp"

#include <cblas.h>

namespace trainhost::cpu {
namespace {

blasint bi(std::uint64_t v) { return static_cast<blasint>(v); }
std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
std::uint64_t round_up(std::uint64_t a, std::uint64_t b) { return ceil_div(a, b) * b; }

// Tiles of about `rows` x `cols`, as equal as multiples of 4 rows and 16 columns allow.
Grid even_grid(std::uint64_t m, std::uint64_t n, std::uint64_t rows, std::uint64_t cols) {
  Grid g{};
  g.rows = std::min(m, round_up(ceil_div(m, ceil_div(m, rows)), 4));
  g.cols = std::min(n, round_up(ceil_div(n, ceil_div(n, cols)), 16));
  g.row_tiles = ceil_div(m, g.rows);
  g.col_tiles = ceil_div(n, g.cols);
  return g;
}

}  // namespace

Grid small_grid(std::uint64_t m, std::uint64_t n) {
  return even_grid(m, n, std::clamp<std::uint64_t>(m / 16, 16, 256), n);
}

// Tiles are halved until there are eight, or until smaller ones would be slow in OpenBLAS.
Grid large_grid(std::uint64_t m, std::uint64_t n) {
  std::uint64_t rows = 256, cols = 768;
  Grid g = even_grid(m, n, rows, cols);
  while (g.tiles() < 8 && (cols > 192 || rows > 128)) {
    if (cols > 192)
      cols /= 2;
    else
      rows /= 2;
    g = even_grid(m, n, rows, cols);
  }
  return g;
}

GradientSplit gradient_split(std::uint64_t n, std::uint64_t k, std::uint64_t tokens) {
  const Grid g =
      small_weight(n, k) ? even_grid(n, k, kGradientRows, kGradientCols) : even_grid(n, k, 256, 768);
  return {g, gradient_slots(n, k, tokens)};
}

void blas_tile(Right side, Range rows, Range cols, std::uint64_t n, std::uint64_t k, const float* a,
               const float* w, bool add, float* c) {
  const bool t = side == Right::kTransposed;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, t ? CblasTrans : CblasNoTrans, bi(rows.size()), bi(cols.size()),
              bi(k), 1.0f, a + rows.begin * k, bi(k), t ? w + cols.begin * k : w + cols.begin, bi(t ? k : n),
              add ? 1.0f : 0.0f, c + rows.begin * n + cols.begin, bi(n));
}

std::uint64_t pack_weight(OpContext& ctx, Right side, std::uint64_t n, std::uint64_t k, const float* w) {
  const std::uint64_t width = ctx.kernels.panel_width(n);
  ctx.pool.run(static_cast<std::uint32_t>(ceil_div(n, width)), [&](std::uint32_t i, std::uint32_t) {
    const std::uint64_t j = i * width, count = std::min(width, n - j);
    float* to = ctx.shared_workspace() + j * k;
    if (side == Right::kTransposed)
      ctx.kernels.pack_transposed(count, k, w + j * k, k, width, to);
    else
      ctx.kernels.pack(count, k, w + j, n, width, to);
  });
  return width;
}

void gradient_task(OpContext& ctx, const GradientSplit& split, std::uint32_t task, std::uint32_t worker,
                   std::uint64_t n, std::uint64_t k, std::uint64_t tokens, const float* dy, const float* x,
                   bool overwrite, float* grad) {
  const std::uint64_t slot = task / split.grid.tiles();
  const std::uint32_t tile = task % split.grid.tiles();
  const Range rows = split.grid.row_range(tile, n), cols = split.grid.col_range(tile, k),
              t = part(tokens, slot, split.slots);
  const bool add = slot == 0 && !overwrite;
  float* c = (slot == 0 ? grad : ctx.shared_workspace() + (slot - 1) * n * k) + rows.begin * k + cols.begin;
  dy += t.begin * n + rows.begin;
  x += t.begin * k + cols.begin;
  if (small_weight(n, k))
    ctx.kernels.product(rows.size(), cols.size(), t.size(), dy, n, true, x, k, add, c, k,
                        ctx.worker_workspace(worker));
  else
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, bi(rows.size()), bi(cols.size()), bi(t.size()), 1.0f,
                dy, bi(n), x, bi(k), add ? 1.0f : 0.0f, c, bi(k));
}

void combine_gradient(OpContext& ctx, const GradientSplit& split, std::uint64_t n, std::uint64_t k,
                      float* grad) {
  ctx.over_rows(n, k, [&](std::uint64_t row, std::uint64_t rows) {
    for (std::uint64_t slot = 1; slot < split.slots; ++slot)
      ctx.kernels.add(rows * k, ctx.shared_workspace() + (slot - 1) * n * k + row * k, grad + row * k);
  });
}

}  // namespace trainhost::cpu
