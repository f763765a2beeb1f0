// DoRA: factors m / n of the outputs of a product, where n is the norm of a row of W + scale * B A, and the
// product with them, forward and backward. The norms cost as much as the products of `rank` tokens, once per
// micro-batch. Interface: dora_kernels.hpp.
#include "plugins/cuda/kernels/dora_kernels.hpp"

#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

// ---- norms of rows
// A block computes kNormRows rows: each thread adds up packs of columns of all of them, so that an element of
// A is loaded once for kNormRows rows. The factors scale * B are in shared memory, kRanksAhead of each row at
// a time. SQUARES: out receives the squared norms, else it receives the factors.
constexpr std::uint32_t kNormThreads = 256, kNormRows = 8, kRanksAhead = 64;

/// factor = m / n and inverse = 1 / n of an output. A row of zeros has no direction.
__device__ __forceinline__ void set_factors(double squares, float magnitude, float& factor, float& inverse) {
  const double norm = sqrt(squares);
  factor = norm > 0 ? static_cast<float>(magnitude / norm) : 0.0f;
  inverse = norm > 0 ? static_cast<float>(1.0 / norm) : 0.0f;
}

template <class T, int V, bool SQUARES>
__global__ __launch_bounds__(kNormThreads) void adapted_norms_kernel(const AdaptedMatrix<T> x,
                                                                     const T* __restrict__ magnitude,
                                                                     float* __restrict__ out,
                                                                     float* __restrict__ inverse) {
  __shared__ float factors[kRanksAhead][kNormRows];
  __shared__ double sums[kNormThreads / 32][kNormRows];
  const std::uint32_t first = blockIdx.x * kNormRows, last = x.outputs - 1;
  // Rows beyond the last one repeat it, and their results are not stored.
  const auto row = [&](std::uint32_t r) { return std::uint64_t{first + r < last ? first + r : last}; };
  float squares[kNormRows] = {};
  // All threads take part in every tile of columns, because the tiles contain barriers.
  for (std::uint32_t tile = 0; tile < x.k; tile += kNormThreads * V) {
    const std::uint32_t column = tile + threadIdx.x * V;
    const bool has_columns = column < x.k;
    Floats<V> sum[kNormRows];
#pragma unroll
    for (std::uint32_t r = 0; r < kNormRows; ++r)
      sum[r] = has_columns ? load_floats<V>(x.w + row(r) * x.k + column) : Floats<V>{};
    for (std::uint32_t done = 0; done < x.rank; done += kRanksAhead) {
      const std::uint32_t ranks = x.rank - done < kRanksAhead ? x.rank - done : kRanksAhead;
      // Factors that are all in shared memory already stay there for the next tile.
      if (tile == 0 || x.rank > kRanksAhead) {
        __syncthreads();
        for (std::uint32_t i = threadIdx.x; i < ranks * kNormRows; i += kNormThreads) {
          const std::uint32_t q = i / kNormRows, r = i % kNormRows;
          factors[q][r] = x.scale * to_float(x.b[row(r) * x.rank + done + q]);
        }
        __syncthreads();
      }
      if (!has_columns) continue;
      for (std::uint32_t q = 0; q < ranks; ++q) {
        const Floats<V> a = load_floats<V>(x.a + std::uint64_t{done + q} * x.k + column);
#pragma unroll
        for (std::uint32_t r = 0; r < kNormRows; ++r)
#pragma unroll
          for (int e = 0; e < V; ++e) sum[r][e] += a[e] * factors[q][r];
      }
    }
#pragma unroll
    for (std::uint32_t r = 0; r < kNormRows; ++r)
#pragma unroll
      for (int e = 0; e < V; ++e) squares[r] += sum[r][e] * sum[r][e];
  }
#pragma unroll
  for (std::uint32_t r = 0; r < kNormRows; ++r) {
    const double of_warp = warp_sum(static_cast<double>(squares[r]));
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32][r] = of_warp;
  }
  __syncthreads();
  const std::uint32_t output = first + threadIdx.x;
  if (threadIdx.x >= kNormRows || output > last) return;
  double total = 0;
#pragma unroll
  for (std::uint32_t w = 0; w < kNormThreads / 32; ++w) total += sums[w][threadIdx.x];
  if constexpr (SQUARES)
    out[output] = static_cast<float>(total);
  else
    set_factors(total, to_float(magnitude[output]), out[output], inverse[output]);
}

// Of an embedding: norms of the columns of the table W + scale * A B^T. A block has 32 columns of all rows,
// of which each of its warps adds every kColumnWarps-th. Squares of up to 32 rows are added in float.
constexpr std::uint32_t kColumnWarps = 16;

template <class T, bool SQUARES>
__global__ __launch_bounds__(kColumnWarps *
                             32) void adapted_column_norms_kernel(const AdaptedMatrix<T> x,
                                                                  const T* __restrict__ magnitude,
                                                                  float* __restrict__ out,
                                                                  float* __restrict__ inverse) {
  __shared__ double sums[kColumnWarps][32];
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  double total = 0;
  if (column < x.outputs) {
    const T* b = x.b + std::uint64_t{column} * x.rank;
    for (std::uint32_t base = warp; base < x.k; base += kColumnWarps * 32) {
      float squares = 0;
      for (std::uint32_t j = 0; j < 32; ++j) {
        const std::uint64_t row = std::uint64_t{base} + j * kColumnWarps;
        if (row >= x.k) break;
        const T* a = x.a + row * x.rank;
        float sum = to_float(x.w[row * x.outputs + column]);
        for (std::uint32_t q = 0; q < x.rank; ++q) sum += to_float(a[q]) * (x.scale * to_float(b[q]));
        squares += sum * sum;
      }
      total += static_cast<double>(squares);
    }
  }
  sums[warp][lane] = total;
  __syncthreads();
  if (warp != 0 || column >= x.outputs) return;
  total = sums[0][lane];
#pragma unroll
  for (std::uint32_t w = 1; w < kColumnWarps; ++w) total += sums[w][lane];
  if constexpr (SQUARES)
    out[column] = static_cast<float>(total);
  else
    set_factors(total, to_float(magnitude[column]), out[column], inverse[column]);
}

template <bool SQUARES, class T>
cudaError_t adapted_norms(cudaStream_t stream, const AdaptedMatrix<T>& x, const T* magnitude, float* out,
                          float* inverse) {
  if (x.outputs == 0) return cudaSuccess;
  if (x.table)
    return launch(adapted_column_norms_kernel<T, SQUARES>,
                  dim3(static_cast<unsigned>(divide_up(x.outputs, 32))), dim3(kColumnWarps * 32), 0, stream,
                  x, magnitude, out, inverse);
  const auto aligned = [](const T* p) { return reinterpret_cast<std::uintptr_t>(p) % (4 * sizeof(T)) == 0; };
  const bool wide = x.k % 4 == 0 && aligned(x.w) && aligned(x.a);
  return launch(wide ? adapted_norms_kernel<T, 4, SQUARES> : adapted_norms_kernel<T, 1, SQUARES>,
                dim3(static_cast<unsigned>(divide_up(x.outputs, kNormRows))), dim3(kNormThreads), 0, stream,
                x, magnitude, out, inverse);
}

template <class T>
__global__ __launch_bounds__(256) void dora_factors_kernel(std::uint32_t outputs,
                                                           const float* __restrict__ squares,
                                                           const T* __restrict__ magnitude,
                                                           float* __restrict__ factor,
                                                           float* __restrict__ inverse) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < outputs) set_factors(squares[i], to_float(magnitude[i]), factor[i], inverse[i]);
}

__global__ __launch_bounds__(256) void dora_no_factors_kernel(std::uint32_t outputs,
                                                              float* __restrict__ factor,
                                                              float* __restrict__ inverse) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < outputs) factor[i] = 1.0f, inverse[i] = 0.0f;
}

// ---- the product with the factors
// x or residual may be y, so none of them is __restrict__: a thread loads an element before it stores it, and
// no other thread accesses it.
template <class T, int V>
__global__ __launch_bounds__(256) void dora_kernel(std::uint64_t rows, std::uint32_t n, const T* x,
                                                   const float* __restrict__ factor, float less,
                                                   const T* __restrict__ bias, const T* residual, T* y,
                                                   std::uint32_t lanes) {
  const ThreadPacks at = packs_of_thread<1>(lanes);
  if (at.row >= rows || at.first * V >= n) return;
  const std::uint32_t column = at.first * V;
  const std::uint64_t i = at.row * n + column;
  Floats<V> v = load_floats<V>(x + i);
  const Floats<V> f = load_f32<V>(factor + column);
  Floats<V> b{}, before{};
  if (bias) b = load_floats<V>(bias + column);
  if (residual) before = load_floats<V>(residual + i);
#pragma unroll
  for (int e = 0; e < V; ++e) v[e] = (f[e] - less) * v[e] + b[e] + before[e];
  store_floats(y + i, v);
}

// A block has 32 columns of all rows, so the sums of a magnitude's gradient need no partial results in
// memory. Each of its warps adds every kDoraWarps-th row; then the sums of the warps are added in order.
// product may be dy: a thread loads what it overwrites.
constexpr std::uint32_t kDoraWarps = 16, kRowsAhead = 4;

template <class T>
__global__ __launch_bounds__(kDoraWarps * 32) void dora_bwd_kernel(std::uint64_t rows, std::uint32_t n,
                                                                   const DoraBlocks blocks, const T* dy,
                                                                   const float* __restrict__ factor,
                                                                   const float* __restrict__ inverse,
                                                                   bool overwrite, T* __restrict__ x,
                                                                   T* product, float* __restrict__ grad) {
  __shared__ float sums[kDoraWarps][32];
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float total = 0;
  if (column < n) {
    const float f = factor[column];
    for (std::uint64_t base = warp; base < rows; base += kDoraWarps * kRowsAhead) {
      float d[kRowsAhead], u[kRowsAhead];
#pragma unroll
      for (std::uint32_t j = 0; j < kRowsAhead; ++j) {
        const std::uint64_t row = base + j * kDoraWarps;
        const bool present = row < rows;
        d[j] = present ? to_float(dy[row * n + column]) : 0.0f;
        u[j] = present ? to_float(x[row * n + column]) : 0.0f;
      }
#pragma unroll
      for (std::uint32_t j = 0; j < kRowsAhead; ++j) {
        const std::uint64_t row = base + j * kDoraWarps;
        if (row >= rows) continue;
        total += d[j] * u[j];
        x[row * n + column] = from_float<T>(d[j] * f);
        if (product) product[row * n + column] = from_float<T>(d[j] * (f - 1.0f));
      }
    }
  }
  sums[warp][lane] = total;
  __syncthreads();
  if (warp != 0 || column >= n) return;
  float sum = sums[0][lane];
#pragma unroll
  for (std::uint32_t w = 1; w < kDoraWarps; ++w) sum += sums[w][lane];
#pragma unroll
  for (std::uint32_t b = 0; b < DoraBlocks::kMost; ++b) {
    if (b >= blocks.count) break;
    const DoraBlocks::Block& block = blocks.block[b];
    if (column < block.first_output || column - block.first_output >= block.outputs) continue;
    float& g = grad[block.first_magnitude + column - block.first_output];
    g = (overwrite ? 0.0f : g) + sum * inverse[column];
  }
}

}  // namespace

template <class T>
cudaError_t dora_scale(cudaStream_t stream, const AdaptedMatrix<T>& matrix, const T* magnitude, float* factor,
                       float* inverse) {
  return adapted_norms<false>(stream, matrix, magnitude, factor, inverse);
}

template <class T>
cudaError_t dora_squares(cudaStream_t stream, const AdaptedMatrix<T>& matrix, float* squares) {
  return adapted_norms<true, T>(stream, matrix, nullptr, squares, nullptr);
}

template <class T>
cudaError_t dora_factors(cudaStream_t stream, std::uint32_t outputs, const float* squares, const T* magnitude,
                         float* factor, float* inverse) {
  return launch(dora_factors_kernel<T>, dim3(static_cast<unsigned>(divide_up(outputs, 256))), dim3(256), 0,
                stream, outputs, squares, magnitude, factor, inverse);
}

cudaError_t dora_no_factors(cudaStream_t stream, std::uint32_t outputs, float* factor, float* inverse) {
  return launch(dora_no_factors_kernel, dim3(static_cast<unsigned>(divide_up(outputs, 256))), dim3(256), 0,
                stream, outputs, factor, inverse);
}

template <class T>
cudaError_t dora(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const float* factor,
                 float less, const T* bias, const T* residual, T* y) {
  if (rows == 0 || n == 0) return cudaSuccess;
  const bool wide = wide_rows(n, x, y) && wide_rows(n, bias, residual) &&
                    reinterpret_cast<std::uintptr_t>(factor) % 16 == 0;
  const RowCut cut(rows, wide ? n / kWide<T> : n, 1);
  return launch(wide ? dora_kernel<T, kWide<T>> : dora_kernel<T, 1>, cut.grid(), cut.block(), 0, stream, rows,
                n, x, factor, less, bias, residual, y, cut.lanes);
}

template <class T>
cudaError_t dora_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const DoraBlocks& blocks,
                     const T* dy, const float* factor, const float* inverse, bool overwrite, T* x, T* product,
                     float* grad) {
  return launch(dora_bwd_kernel<T>, dim3(static_cast<unsigned>(divide_up(n, 32))), dim3(kDoraWarps * 32), 0,
                stream, rows, n, blocks, dy, factor, inverse, overwrite, x, product, grad);
}

#define TRAINHOST_DORA(T)                                                                                    \
  template cudaError_t dora_scale<T>(cudaStream_t, const AdaptedMatrix<T>&, const T*, float*, float*);       \
  template cudaError_t dora_squares<T>(cudaStream_t, const AdaptedMatrix<T>&, float*);                       \
  template cudaError_t dora_factors<T>(cudaStream_t, std::uint32_t, const float*, const T*, float*, float*); \
  template cudaError_t dora<T>(cudaStream_t, std::uint64_t, std::uint32_t, const T*, const float*, float,    \
                               const T*, const T*, T*);                                                      \
  template cudaError_t dora_bwd<T>(cudaStream_t, std::uint64_t, std::uint32_t, const DoraBlocks&, const T*,  \
                                   const float*, const float*, bool, T*, T*, float*);
TRAINHOST_DORA(float)
TRAINHOST_DORA(Bf16)
#undef TRAINHOST_DORA

}  // namespace trainhost::cuda
