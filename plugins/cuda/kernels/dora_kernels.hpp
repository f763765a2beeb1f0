// Operations of DoRA, as functions that queue them on a stream (dora.cu): norms of the rows of adapted
// matrices, and the product with the magnitudes, forward and backward. T is the storage type, float or Bf16;
// factors, squares and gradients of magnitudes are f32 in every run. No function uses scratch memory, and
// every sum has a fixed order.
#pragma once
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

/// The adapted matrices of a product, at most q, k and v: of each the first of its outputs in a row of the
/// product, how many it has, and the first of its magnitudes.
struct DoraBlocks {
  static constexpr std::uint32_t kMost = 3;
  std::uint32_t count;
  struct Block {
    std::uint32_t first_output, outputs, first_magnitude;
  } block[kMost];
};

/// W [outputs, k], A [rank, k] and B [outputs, rank] of one adapted matrix. Of an embedding (`table`) W is
/// [k, outputs] and A [k, rank].
template <class T>
struct AdaptedMatrix {
  const T *w, *a, *b;
  std::uint32_t outputs, k, rank;
  float scale;
  bool table = false;
};

/// Per row of W + scale * B A, with its norm n: factor = m / n and inverse = 1 / n, or 0 and 0 if n is 0.
template <class T>
cudaError_t dora_scale(cudaStream_t stream, const AdaptedMatrix<T>& matrix, const T* magnitude, float* factor,
                       float* inverse);
/// squares = n * n.
template <class T>
cudaError_t dora_squares(cudaStream_t stream, const AdaptedMatrix<T>& matrix, float* squares);
/// The result of dora_scale() from the squares of whole rows.
template <class T>
cudaError_t dora_factors(cudaStream_t stream, std::uint32_t outputs, const float* squares, const T* magnitude,
                         float* factor, float* inverse);
/// The factors of outputs without an adapter: 1, and 0. Of all outputs: dora_scale() overwrites the others.
cudaError_t dora_no_factors(cudaStream_t stream, std::uint32_t outputs, float* factor, float* inverse);

/// y = (factor - less) * x (+ bias) (+ residual).  x, y, residual: [rows, n]; x and residual may be y.
template <class T>
cudaError_t dora(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const float* factor,
                 float less, const T* bias, const T* residual, T* y);
/// grad of magnitudes (= or +=) the sums over rows of dy * x, times inverse; then x = factor * dy, and unless
/// it is null, product = (factor - 1) * dy. product may be dy.
template <class T>
cudaError_t dora_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const DoraBlocks& blocks,
                     const T* dy, const float* factor, const float* inverse, bool overwrite, T* x, T* product,
                     float* grad);

}  // namespace trainhost::cuda
