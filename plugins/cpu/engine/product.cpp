// Tiles by OpenBLAS. The numbers in grid() were measured; plugins/cpu/README.md has the table.
#include "plugins/cpu/engine/product.hpp"

#include <cblas.h>

#include <algorithm>

namespace trainhost::cpu {
namespace {
blasint bi(std::uint64_t v) { return static_cast<blasint>(v); }
std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
}  // namespace

void product_nt(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda, const float* b,
                std::uint64_t ldb, float beta, float* c, std::uint64_t ldc) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, bi(m), bi(n), bi(k), 1.0f, a, bi(lda), b, bi(ldb), beta, c, bi(ldc));
}
void product_nn(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda, const float* b,
                std::uint64_t ldb, float beta, float* c, std::uint64_t ldc) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, bi(m), bi(n), bi(k), 1.0f, a, bi(lda), b, bi(ldb), beta, c, bi(ldc));
}
void product_tn(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda, const float* b,
                std::uint64_t ldb, float beta, float* c, std::uint64_t ldc) {
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, bi(m), bi(n), bi(k), 1.0f, a, bi(lda), b, bi(ldb), beta, c, bi(ldc));
}

static Grid grid_of(std::uint64_t m, std::uint64_t n, std::uint64_t rows, std::uint64_t cols) {
  Grid g{};
  g.row_tiles = ceil_div(m, std::min(m, rows));
  g.rows = ceil_div(m, g.row_tiles);
  g.cols = std::min(n, ceil_div(ceil_div(n, ceil_div(n, cols)), 16) * 16);
  g.row_tiles = ceil_div(m, g.rows);
  g.col_tiles = ceil_div(n, g.cols);
  return g;
}

Grid grid(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  return grid_of(m, n, n * k <= 512 * 512 ? 128 : 256, 768);
}

Grid grid_dw(std::uint64_t m, std::uint64_t n, std::uint64_t) {
  return m * n <= 256 * 1024 ? grid_of(m, n, 96, 128) : grid_of(m, n, 256, 768);
}

}  // namespace trainhost::cpu
