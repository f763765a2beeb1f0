// What Muon needs beside matrix products: momentum with the norm of the direction, and the update of the
// weights. Sums of blocks are added in order. Interface: tensor_optimizers.hpp.
#include "plugins/cuda/kernels/tensor_optimizers.hpp"

#include "plugins/cuda/kernels/update_pieces.hpp"

namespace trainhost::cuda {
namespace {

constexpr std::uint32_t kMuonChunk = 1024;
constexpr double kSmallestMuonNorm = 1e-7;

std::uint32_t muon_blocks(std::uint64_t elements) {
  const std::uint64_t chunks = divide_up(elements, kMuonChunk);
  return chunks < kUpdateBlocks ? static_cast<std::uint32_t>(chunks) : kUpdateBlocks;
}

/// partials[b] = sum of the squares of the elements of x that block b has written; null: not needed.
__global__ __launch_bounds__(kUpdateThreads) void muon_momentum_kernel(
    std::uint64_t elements, const float* __restrict__ grad, float* __restrict__ m, float* __restrict__ x,
    float beta, float one_minus_beta, float* __restrict__ partials, const double* __restrict__ scalars) {
  __shared__ double shared[32];
  if (scalars[step::kApplied] == 0) return;
  const auto clip = static_cast<float>(scalars[step::kClipFactor]);
  double squares = 0;
  for (std::uint64_t base = std::uint64_t{blockIdx.x} * kMuonChunk + threadIdx.x; base < elements;
       base += std::uint64_t{gridDim.x} * kMuonChunk) {
    float sum = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < kMuonChunk / kUpdateThreads; ++k) {
      const std::uint64_t i = base + k * kUpdateThreads;
      if (i >= elements) continue;
      const float g = grad[i] * clip, mi = beta * m[i] + one_minus_beta * g,
                  xi = one_minus_beta * g + beta * mi;
      m[i] = mi, x[i] = xi;
      sum += xi * xi;
    }
    squares += sum;
  }
  squares = sum_of_block(squares, shared);
  if (threadIdx.x == 0 && partials) partials[blockIdx.x] = static_cast<float>(squares);
}

/// As muon_momentum_kernel, of elements that are in the pieces of several ranks.
__global__ __launch_bounds__(kUpdateThreads) void muon_assemble_kernel(const MuonPieces t,
                                                                       const float* __restrict__ pieces,
                                                                       float* __restrict__ x,
                                                                       float* __restrict__ partials) {
  __shared__ double shared[32];
  const std::uint64_t elements = t.rows * t.cols;
  double squares = 0;
  for (std::uint64_t base = std::uint64_t{blockIdx.x} * kMuonChunk + threadIdx.x; base < elements;
       base += std::uint64_t{gridDim.x} * kMuonChunk) {
    float sum = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < kMuonChunk / kUpdateThreads; ++k) {
      const std::uint64_t i = base + k * kUpdateThreads;
      if (i >= elements) continue;
      const std::uint64_t row = divide(i, static_cast<std::uint32_t>(t.cols)), col = i - row * t.cols;
      const std::uint64_t rank = t.by_columns ? divide(col, static_cast<std::uint32_t>(t.part_cols))
                                              : divide(row, static_cast<std::uint32_t>(t.part_rows)),
                          r = t.by_columns ? row : row - rank * t.part_rows,
                          c = t.by_columns ? col - rank * t.part_cols : col;
      const float xi = pieces[rank * t.piece + (t.first_row + r) * t.part_cols + c];
      x[i] = xi;
      sum += xi * xi;
    }
    squares += sum;
  }
  squares = sum_of_block(squares, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = static_cast<float>(squares);
}

__global__ __launch_bounds__(kUpdateThreads) void muon_take_kernel(const MuonPieces t,
                                                                   const float* __restrict__ x,
                                                                   float* __restrict__ pieces) {
  const std::uint64_t elements = t.part_rows * t.part_cols;
  float* own = pieces + t.own * t.piece + t.first_row * t.part_cols;
#pragma unroll 4
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kUpdateThreads + threadIdx.x; i < elements;
       i += std::uint64_t{gridDim.x} * kUpdateThreads) {
    const std::uint64_t row = divide(i, static_cast<std::uint32_t>(t.part_cols)), col = i - row * t.part_cols;
    own[i] = t.by_columns ? x[row * t.cols + t.own * t.part_cols + col]
                          : x[(t.own * t.part_rows + row) * t.cols + col];
  }
}

__global__ __launch_bounds__(kUpdateThreads) void muon_normalise_kernel(std::uint64_t elements,
                                                                        float* __restrict__ x,
                                                                        std::uint32_t count,
                                                                        const float* __restrict__ partials,
                                                                        const double* __restrict__ scalars) {
  __shared__ double shared[32];
  if (scalars[step::kApplied] == 0) return;
  double squares = 0;
  for (std::uint32_t b = threadIdx.x; b < count; b += kUpdateThreads) squares += partials[b];
  squares = sum_of_block(squares, shared);
  const auto scale = static_cast<float>(1.0 / fmax(sqrt(squares), kSmallestMuonNorm));
#pragma unroll 4
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kUpdateThreads + threadIdx.x; i < elements;
       i += std::uint64_t{gridDim.x} * kUpdateThreads)
    x[i] *= scale;
}

template <class T>
__global__ __launch_bounds__(kUpdateThreads) void muon_apply_kernel(const TensorPiece<T> t,
                                                                    const float* __restrict__ x,
                                                                    double lr_factor,
                                                                    const double* __restrict__ scalars) {
  if (scalars[step::kApplied] == 0) return;
  const auto step = static_cast<float>(scalars[step::kLr] * lr_factor);
  const float decay = t.decay ? static_cast<float>(scalars[step::kDecayFactor]) : 1.0f;
#pragma unroll 4
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kUpdateThreads + threadIdx.x; i < t.elements;
       i += std::uint64_t{gridDim.x} * kUpdateThreads)
    set_weight<T>(t, i, decay * weight_of<T>(t, i) - step * x[i]);
}

}  // namespace

cudaError_t muon_direction(cudaStream_t stream, std::uint64_t elements, const float* grad, float* m, float* x,
                           float beta, float one_minus_beta, float* partials, const double* scalars) {
  const std::uint32_t blocks = muon_blocks(elements);
  const cudaError_t e = launch(muon_momentum_kernel, dim3(blocks), dim3(kUpdateThreads), 0, stream, elements,
                               grad, m, x, beta, one_minus_beta, partials, scalars);
  if (e != cudaSuccess) return e;
  return launch(muon_normalise_kernel, dim3(blocks), dim3(kUpdateThreads), 0, stream, elements, x, blocks,
                partials, scalars);
}

cudaError_t muon_momentum(cudaStream_t stream, std::uint64_t elements, const float* grad, float* m, float* x,
                          float beta, float one_minus_beta, const double* scalars) {
  return launch(muon_momentum_kernel, dim3(muon_blocks(elements)), dim3(kUpdateThreads), 0, stream, elements,
                grad, m, x, beta, one_minus_beta, static_cast<float*>(nullptr), scalars);
}

cudaError_t muon_assemble(cudaStream_t stream, const MuonPieces& tensor, const float* pieces, float* x,
                          float* partials, const double* scalars) {
  const std::uint64_t elements = tensor.rows * tensor.cols;
  const std::uint32_t blocks = muon_blocks(elements);
  const cudaError_t e = launch(muon_assemble_kernel, dim3(blocks), dim3(kUpdateThreads), 0, stream, tensor,
                               pieces, x, partials);
  if (e != cudaSuccess) return e;
  return launch(muon_normalise_kernel, dim3(blocks), dim3(kUpdateThreads), 0, stream, elements, x, blocks,
                partials, scalars);
}

cudaError_t muon_take(cudaStream_t stream, const MuonPieces& tensor, const float* x, float* pieces) {
  return launch(muon_take_kernel, dim3(muon_blocks(tensor.part_rows * tensor.part_cols)),
                dim3(kUpdateThreads), 0, stream, tensor, x, pieces);
}

template <class T>
cudaError_t muon_apply(cudaStream_t stream, const TensorPiece<T>& t, const float* x, double lr_factor,
                       const double* scalars) {
  return launch(muon_apply_kernel<T>, dim3(muon_blocks(t.elements)), dim3(kUpdateThreads), 0, stream, t, x,
                lr_factor, scalars);
}

template cudaError_t muon_apply<float>(cudaStream_t, const TensorPiece<float>&, const float*, double,
                                       const double*);
template cudaError_t muon_apply<Bf16>(cudaStream_t, const TensorPiece<Bf16>&, const float*, double,
                                      const double*);

}  // namespace trainhost::cuda
