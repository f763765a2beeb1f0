// RMS norm over rows, and the sum of the slots that kernels write partial gradients of weights to. A row is
// read once: it stays in registers between the sum of squares and the scaling. Gradient: norm_backward.cu;
// norms of q and k heads: norm_heads.cu. Interface: kernel_functions.hpp.
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

// A thread keeps up to kKept packs. Rows of up to 32 * kKept packs are processed by one warp, longer ones by
// a block with the smallest sufficient number of warps.
constexpr int kKept = 4;
constexpr std::uint32_t kRowsOfBlock = 8;  // warps, and so rows, per block if a warp processes a row

template <class T, int V>
__device__ __forceinline__ float squares(const Pack<T, V>& pack) {
  const Floats<V> f = unpack(pack);
  float sum = 0;
#pragma unroll
  for (int e = 0; e < V; ++e) sum = fmaf(f[e], f[e], sum);
  return sum;
}
template <class T, int V>
__device__ __forceinline__ void store_scaled(T* y, const Pack<T, V>& x, float scale, const Pack<T, V>& w) {
  Floats<V> f = unpack(x);
  const Floats<V> g = unpack(w);
#pragma unroll
  for (int e = 0; e < V; ++e) f[e] = f[e] * scale * g[e];
  store_floats(y, f);
}

// kWarpRow: one row per warp, no barrier; else one row per block.
template <class T, int V, bool kWarpRow>
__global__ __launch_bounds__(kWarpRow ? 256 : 1024) void rms_norm_kernel(std::uint64_t rows, std::uint32_t n,
                                                                         const T* x, const T* __restrict__ w,
                                                                         float eps, T* y, float* rstd) {
  __shared__ float shared[32];
  const std::uint32_t lanes = kWarpRow ? 32 : blockDim.x, lane = threadIdx.x % lanes, packs = n / V;
  const std::uint64_t row =
      kWarpRow ? std::uint64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / 32 : blockIdx.x;
  if (kWarpRow && row >= rows) return;  // whole warps return, and no barrier follows
  x += row * n;
  y += row * n;
  // All loads are issued before the first use. Packs beyond the row are zeros and add nothing to the sum.
  Pack<T, V> kept[kKept], weights[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    kept[k] = lane + k * lanes < packs ? load<V>(x + (lane + k * lanes) * V) : zeros<T, V>();
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    weights[k] = lane + k * lanes < packs ? load<V>(w + (lane + k * lanes) * V) : zeros<T, V>();
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kKept; ++k) sum += squares(kept[k]);
  sum = kWarpRow ? warp_sum(sum) : sum_of_block(sum, shared);
  const float scale = rsqrtf(sum / static_cast<float>(n) + eps);
  if (lane == 0) rstd[row] = scale;
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (lane + k * lanes < packs) store_scaled(y + (lane + k * lanes) * V, kept[k], scale, weights[k]);
}

// Rows that do not fit into registers are read twice.
template <class T, int V>
__global__ __launch_bounds__(1024) void rms_norm_long_kernel(std::uint32_t n, const T* x,
                                                             const T* __restrict__ w, float eps, T* y,
                                                             float* rstd) {
  __shared__ float shared[32];
  const std::uint64_t row = blockIdx.x;
  const std::uint32_t packs = n / V;
  x += row * n;
  y += row * n;
  float sum = 0;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x)
    sum += squares(load<V>(x + std::uint64_t{i} * V));
  sum = sum_of_block(sum, shared);
  const float scale = rsqrtf(sum / static_cast<float>(n) + eps);
  if (threadIdx.x == 0) rstd[row] = scale;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x)
    store_scaled(y + std::uint64_t{i} * V, load<V>(x + std::uint64_t{i} * V), scale,
                 load<V>(w + std::uint64_t{i} * V));
}

template <class T, int V>
cudaError_t rms_norm_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const T* w,
                           float eps, T* y, float* rstd) {
  const std::uint32_t packs = n / V;
  if (packs <= 32 * kKept) {
    const dim3 grid(static_cast<unsigned>(divide_up(rows, kRowsOfBlock)));
    return launch(rms_norm_kernel<T, V, true>, grid, dim3(32 * kRowsOfBlock), 0, stream, rows, n, x, w, eps,
                  y, rstd);
  }
  const dim3 grid(static_cast<unsigned>(rows));
  if (packs <= 1024 * kKept) {
    const dim3 block(whole_warps(divide_up(packs, kKept)));
    return launch(rms_norm_kernel<T, V, false>, grid, block, 0, stream, rows, n, x, w, eps, y, rstd);
  }
  return launch(rms_norm_long_kernel<T, V>, grid, dim3(1024), 0, stream, n, x, w, eps, y, rstd);
}

// ---- slots
// A block sums 32 columns. Its 8 warps load kSlotsAtOnce slots into shared memory, so that many loads are in
// flight; then one warp adds them in the order of the slots.
constexpr std::uint32_t kSlotWarps = 8, kSlotsAtOnce = 256;

__global__ __launch_bounds__(kSlotWarps * 32) void sum_slots_kernel(std::uint32_t slots, std::uint32_t n,
                                                                    std::uint32_t ld,
                                                                    const float* __restrict__ partials,
                                                                    bool overwrite, float* grad) {
  __shared__ float staged[kSlotsAtOnce][32];
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float total = 0;
  for (std::uint32_t base = 0; base < slots; base += kSlotsAtOnce) {
    const std::uint32_t count = slots - base < kSlotsAtOnce ? slots - base : kSlotsAtOnce;
    if (column < n) {
#pragma unroll 8
      for (std::uint32_t s = warp; s < count; s += kSlotWarps)
        staged[s][lane] = partials[std::uint64_t{base + s} * ld + column];
    }
    __syncthreads();  // the slots are complete
    if (warp == 0 && column < n) {
#pragma unroll 16
      for (std::uint32_t s = 0; s < count; ++s)
        total = base + s == 0 ? staged[0][lane] : total + staged[s][lane];
    }
    __syncthreads();  // `staged` may be overwritten
  }
  if (warp == 0 && column < n) grad[column] = overwrite ? total : grad[column] + total;
}

}  // namespace

template <class T>
cudaError_t rms_norm(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const T* w,
                     float eps, T* y, float* rstd) {
  if (rows == 0 || n == 0) return cudaSuccess;
  return wide_rows(n, x, w, y) ? rms_norm_packs<T, kWide<T>>(stream, rows, n, x, w, eps, y, rstd)
                               : rms_norm_packs<T, 1>(stream, rows, n, x, w, eps, y, rstd);
}

cudaError_t sum_slots(cudaStream_t stream, std::uint32_t slots, std::uint32_t n, std::uint32_t ld,
                      const float* partials, bool overwrite, float* grad) {
  return launch(sum_slots_kernel, dim3(static_cast<unsigned>(divide_up(n, 32))), dim3(kSlotWarps * 32), 0,
                stream, slots, n, ld, partials, overwrite, grad);
}

template cudaError_t rms_norm<float>(cudaStream_t, std::uint64_t, std::uint32_t, const float*, const float*,
                                     float, float*, float*);
template cudaError_t rms_norm<Bf16>(cudaStream_t, std::uint64_t, std::uint32_t, const Bf16*, const Bf16*,
                                    float, Bf16*, float*);

}  // namespace trainhost::cuda
