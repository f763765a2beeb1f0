// Matrix products of one tile, single-threaded, row-major f32. Every larger product of the trainer is a grid of these,
// and the grid follows from the shape alone; so bits depend on shape and library, never on the number of threads.
#pragma once
#include <algorithm>
#include <cstdint>

namespace trainhost::cpu {

/// C[m,n] = A[m,k] B[n,k]^T + beta C.  ld*: floats between rows. beta 0: C is not read.
void product_nt(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda, const float* b,
                std::uint64_t ldb, float beta, float* c, std::uint64_t ldc);
/// C[m,n] = A[m,k] B[k,n] + beta C.
void product_nn(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda, const float* b,
                std::uint64_t ldb, float beta, float* c, std::uint64_t ldc);
/// C[m,n] = A[k,m]^T B[k,n] + beta C.
void product_tn(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda, const float* b,
                std::uint64_t ldb, float beta, float* c, std::uint64_t ldc);

/// A range of rows or columns, and the i-th of n equal parts of a whole.
struct Range {
  std::uint64_t begin, end;
  std::uint64_t size() const { return end - begin; }
};
inline Range part(std::uint64_t whole, std::uint64_t i, std::uint64_t n) { return {whole * i / n, whole * (i + 1) / n}; }

/// A grid of tiles over C[m,n], tile sizes chosen from the shape. Neighbouring tiles share their rows.
struct Grid {
  std::uint64_t rows, cols;  // of one tile
  std::uint64_t row_tiles, col_tiles;
  std::uint32_t tiles() const { return static_cast<std::uint32_t>(row_tiles * col_tiles); }
  Range row_range(std::uint32_t tile, std::uint64_t m) const {
    std::uint64_t r = tile / col_tiles * rows;
    return {r, std::min(m, r + rows)};
  }
  Range col_range(std::uint32_t tile, std::uint64_t n) const {
    std::uint64_t c = tile % col_tiles * cols;
    return {c, std::min(n, c + cols)};
  }
};
Grid grid(std::uint64_t m, std::uint64_t n, std::uint64_t k);
/// The same for weight gradients, where the sum runs over all tokens and the result is small.
Grid grid_dw(std::uint64_t m, std::uint64_t n, std::uint64_t tokens);

}  // namespace trainhost::cpu
