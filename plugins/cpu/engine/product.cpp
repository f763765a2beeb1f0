// The numbers in the grids were measured; plugins/cpu/README.md has the tables.
#include "plugins/cpu/engine/product.hpp"

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

Grid large_grid(std::uint64_t m, std::uint64_t n, std::uint64_t) { return even_grid(m, n, 256, 768); }

Grid gradient_grid(std::uint64_t n, std::uint64_t k, std::uint64_t tokens) {
  if (!small_weight(n, k)) return even_grid(n, k, 256, 768);
  // About 8 MFLOP a tile and 4 to 24 tiles, a multiple of 4, so that few threads share them evenly; none larger than the
  // copies of product() reach.
  const std::uint64_t cols = std::min<std::uint64_t>(k, k <= 192 ? k : 128);
  const std::uint64_t wanted = round_up(std::clamp<std::uint64_t>(2 * n * k * tokens / 8'000'000, 4, 24), 4);
  const std::uint64_t row_tiles = std::max<std::uint64_t>(1, wanted / ceil_div(k, cols));
  return even_grid(n, k, std::clamp<std::uint64_t>(ceil_div(n, row_tiles), 12, 128), cols);
}

void blas_tile(Right side, Range rows, Range cols, std::uint64_t n, std::uint64_t k, const float* a, const float* w, bool add,
               float* c) {
  const bool t = side == Right::kTransposed;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, t ? CblasTrans : CblasNoTrans, bi(rows.size()), bi(cols.size()), bi(k), 1.0f,
              a + rows.begin * k, bi(k), t ? w + cols.begin * k : w + cols.begin, bi(t ? k : n), add ? 1.0f : 0.0f,
              c + rows.begin * n + cols.begin, bi(n));
}

std::uint64_t pack_weight(Exec& e, Right side, std::uint64_t n, std::uint64_t k, const float* w) {
  const std::uint64_t width = e.kernels.panel_width(n);
  e.pool.run(static_cast<std::uint32_t>(ceil_div(n, width)), [&](std::uint32_t i, std::uint32_t) {
    const std::uint64_t j = i * width, count = std::min(width, n - j);
    float* to = e.shared_space() + j * k;
    if (side == Right::kTransposed) e.kernels.pack_transposed(count, k, w + j * k, k, width, to);
    else e.kernels.pack(count, k, w + j, n, width, to);
  });
  return width;
}

void gradient_tile(Exec& e, const Grid& g, std::uint32_t i, std::uint32_t worker, std::uint64_t n, std::uint64_t k,
                   std::uint64_t tokens, const float* dy, const float* x, bool overwrite, float* grad) {
  const Range rows = g.row_range(i, n), cols = g.col_range(i, k);
  float* c = grad + rows.begin * k + cols.begin;
  if (small_weight(n, k)) {
    e.kernels.product(rows.size(), cols.size(), tokens, dy + rows.begin, n, true, x + cols.begin, k, !overwrite, c, k,
                      e.worker_space(worker));
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, bi(rows.size()), bi(cols.size()), bi(tokens), 1.0f, dy + rows.begin, bi(n),
              x + cols.begin, bi(k), overwrite ? 0.0f : 1.0f, c, bi(k));
}

}  // namespace trainhost::cpu
