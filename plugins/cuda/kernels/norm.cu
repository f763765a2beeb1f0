// RMS norms over rows and over heads, and their gradients. Every array is read once and written once: a row stays in
// registers between the sum over it and its use. Gradients of weights leave as one partial sum a slot; sum_slots adds them.
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

// ---- forward ---------------------------------------------------------------------------------------------------------
// Up to kKept packs a thread: rows of 32 * kKept packs are one warp's, longer ones a block's of just enough warps.
constexpr int kKept = 4;
constexpr std::uint32_t kRowsOfBlock = 8;  // warps of a block, when each has a row

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

template <class T, int V, bool kWarpRow>
__global__ __launch_bounds__(kWarpRow ? 256 : 1024) void rms_norm_kernel(std::uint64_t rows, std::uint32_t n, const T* x,
                                                                        const T* __restrict__ w, float eps, T* y, float* rstd) {
  __shared__ float shared[32];
  const std::uint32_t lanes = kWarpRow ? 32 : blockDim.x, lane = threadIdx.x % lanes, packs = n / V;
  const std::uint64_t row = kWarpRow ? std::uint64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / 32 : blockIdx.x;
  if (kWarpRow && row >= rows) return;  // whole warps, and no barrier follows
  x += row * n;
  y += row * n;
  Pack<T, V> kept[kKept], weights[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) kept[k] = lane + k * lanes < packs ? load<V>(x + (lane + k * lanes) * V) : zeros<T, V>();
#pragma unroll
  for (int k = 0; k < kKept; ++k) weights[k] = lane + k * lanes < packs ? load<V>(w + (lane + k * lanes) * V) : zeros<T, V>();
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

// Rows too long for registers: read twice.
template <class T, int V>
__global__ __launch_bounds__(1024) void rms_norm_long_kernel(std::uint32_t n, const T* x, const T* __restrict__ w, float eps, T* y,
                                                             float* rstd) {
  __shared__ float shared[32];
  const std::uint64_t row = blockIdx.x;
  const std::uint32_t packs = n / V;
  x += row * n;
  y += row * n;
  float sum = 0;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x) sum += squares(load<V>(x + std::uint64_t{i} * V));
  sum = sum_of_block(sum, shared);
  const float scale = rsqrtf(sum / static_cast<float>(n) + eps);
  if (threadIdx.x == 0) rstd[row] = scale;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x)
    store_scaled(y + std::uint64_t{i} * V, load<V>(x + std::uint64_t{i} * V), scale, load<V>(w + std::uint64_t{i} * V));
}

template <class T, int V>
cudaError_t rms_norm_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const T* w, float eps, T* y, float* rstd) {
  const std::uint32_t packs = n / V;
  if (packs <= 32 * kKept) {
    const dim3 grid(static_cast<unsigned>(divide_up(rows, kRowsOfBlock)));
    return launch(rms_norm_kernel<T, V, true>, grid, dim3(32 * kRowsOfBlock), 0, stream, rows, n, x, w, eps, y, rstd);
  }
  const dim3 grid(static_cast<unsigned>(rows));
  if (packs <= 1024 * kKept) {
    const dim3 block(whole_warps(divide_up(packs, kKept)));
    return launch(rms_norm_kernel<T, V, false>, grid, block, 0, stream, rows, n, x, w, eps, y, rstd);
  }
  return launch(rms_norm_long_kernel<T, V>, grid, dim3(1024), 0, stream, n, x, w, eps, y, rstd);
}

// ---- backward --------------------------------------------------------------------------------------------------------
// A block walks the rows of its slot, several rows side by side where they are short: `lanes` threads a row, K packs a
// thread. The share of the weight's gradient stays in registers throughout; the next row is on its way while this one is summed.
constexpr std::uint32_t kBackThreads = 512;

template <class T, int V, int K>
__global__ __launch_bounds__(kBackThreads, K == 1 ? 2 : 1) void rms_norm_bwd_kernel(std::uint64_t rows, std::uint32_t n, const T* dy,
                                                                                   const T* x, const float* __restrict__ rstd,
                                                                                   const T* __restrict__ w, bool add, T* dx,
                                                                                   std::uint32_t lanes, float* __restrict__ partials) {
  constexpr bool kAhead = K <= 2;                                         // more packs leave no registers for another row
  __shared__ float sums[2][kBackThreads / 32];                            // taken in turns: one barrier a row
  __shared__ float merged[K == 1 ? kBackThreads * V : 1];                 // rows stand side by side only when K is 1
  const std::uint32_t groups = blockDim.x / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes, packs = n / V;
  const std::uint32_t warp = threadIdx.x / 32, warps = lanes / 32;
  const std::uint64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  const float mean_of = 1.0f / static_cast<float>(n);
  bool mine[K];
  Pack<T, V> weights[K], dy_now[K], x_now[K], dy_next[K], x_next[K];
  Floats<V> total[K] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    mine[k] = lane + k * lanes < packs;
    weights[k] = mine[k] ? load<V>(w + (lane + k * lanes) * V) : zeros<T, V>();
  }
  const auto fetch = [&](std::uint64_t row, Pack<T, V>(&dy_to)[K], Pack<T, V>(&x_to)[K], float& scale) {
    const std::uint64_t first = row * n + lane * V;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const bool there = mine[k] && row < end;
      dy_to[k] = there ? load<V>(dy + first + k * lanes * V) : zeros<T, V>();
      x_to[k] = there ? load<V>(x + first + k * lanes * V) : zeros<T, V>();
    }
    scale = row < end ? rstd[row] : 0.0f;
  };
  float scale_next = 0;
  if (kAhead) fetch(begin + group, dy_next, x_next, scale_next);
  std::uint32_t turn = 0;
  for (std::uint64_t base = begin; base < end; base += groups, turn ^= 1) {
    const std::uint64_t row = base + group, first = row * n + lane * V;
    float scale = scale_next;
    if (kAhead) {
#pragma unroll
      for (int k = 0; k < K; ++k) dy_now[k] = dy_next[k], x_now[k] = x_next[k];
      fetch(row + groups, dy_next, x_next, scale_next);
    } else {
      fetch(row, dy_now, x_now, scale);
    }
    Pack<T, V> old[K];
#pragma unroll
    for (int k = 0; k < K; ++k) old[k] = add && mine[k] && row < end ? load<V>(dx + first + k * lanes * V) : zeros<T, V>();
    float dot = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const Floats<V> g = unpack(dy_now[k]), a = unpack(x_now[k]), b = unpack(weights[k]);
#pragma unroll
      for (int e = 0; e < V; ++e) {
        const float product = g[e] * a[e];
        dot = fmaf(product, b[e], dot);
        total[k][e] = fmaf(product, scale, total[k][e]);
      }
    }
    dot = warp_sum(dot);
    if (warps > 1) {
      if (threadIdx.x % 32 == 0) sums[turn][warp] = dot;
      __syncthreads();
      dot = warp_sum(threadIdx.x % 32 < warps ? sums[turn][group * warps + threadIdx.x % 32] : 0.0f);
    }
    // dx = rstd (dy w - x rstd^2 mean(dy w x))
    const float back = dot * mean_of * scale * scale;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!mine[k] || row >= end) continue;
      const Floats<V> g = unpack(dy_now[k]), a = unpack(x_now[k]), b = unpack(weights[k]);
      Floats<V> d = unpack(old[k]);
#pragma unroll
      for (int e = 0; e < V; ++e) d[e] = fmaf(scale, g[e] * b[e] - a[e] * back, d[e]);
      store_floats(dx + first + k * lanes * V, d);
    }
  }

  float* to = partials + std::uint64_t{blockIdx.x} * n;
  if constexpr (K == 1) {
    if (groups > 1) {
      const std::uint32_t width = lanes * V;
#pragma unroll
      for (int e = 0; e < V; ++e) merged[group * width + lane * V + e] = total[0][e];
      __syncthreads();
      for (std::uint32_t j = threadIdx.x; j < n; j += blockDim.x) {
        float sum = merged[j];
        for (std::uint32_t g = 1; g < groups; ++g) sum += merged[g * width + j];
        to[j] = sum;
      }
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (mine[k]) {
#pragma unroll
      for (int e = 0; e < V; ++e) to[(lane + k * lanes) * V + e] = total[k][e];
    }
}

// Rows too long for registers: read twice, and the share of the weight's gradient lies in partials, each column one thread's.
template <class T, int V>
__global__ __launch_bounds__(1024) void rms_norm_bwd_long_kernel(std::uint64_t rows, std::uint32_t n, const T* dy, const T* x,
                                                                 const float* __restrict__ rstd, const T* __restrict__ w, bool add,
                                                                 T* dx, float* partials) {
  __shared__ float shared[2][32];
  const std::uint64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  const std::uint32_t packs = n / V;
  partials += std::uint64_t{blockIdx.x} * n;
  for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x)
    for (int e = 0; e < V; ++e) partials[std::uint64_t{i} * V + e] = 0;
  std::uint32_t turn = 0;
  for (std::uint64_t row = begin; row < end; ++row, turn ^= 1) {
    const T *g_row = dy + row * n, *x_row = x + row * n;
    const float scale = rstd[row];
    float dot = 0;
    for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x) {
      const std::uint64_t at = std::uint64_t{i} * V;
      const Floats<V> g = load_floats<V>(g_row + at), a = load_floats<V>(x_row + at), b = load_floats<V>(w + at);
      for (int e = 0; e < V; ++e) {
        dot = fmaf(g[e] * a[e], b[e], dot);
        partials[at + e] = fmaf(g[e] * a[e], scale, partials[at + e]);
      }
    }
    const float back = sum_of_block(dot, shared[turn]) / static_cast<float>(n) * scale * scale;
    for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x) {
      const std::uint64_t at = std::uint64_t{i} * V;
      const Floats<V> g = load_floats<V>(g_row + at), a = load_floats<V>(x_row + at), b = load_floats<V>(w + at);
      Floats<V> d = add ? load_floats<V>(dx + row * n + at) : Floats<V>{};
      for (int e = 0; e < V; ++e) d[e] = fmaf(scale, g[e] * b[e] - a[e] * back, d[e]);
      store_floats(dx + row * n + at, d);
    }
  }
}

template <class T, int V>
cudaError_t rms_norm_bwd_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* dy, const T* x, const float* rstd,
                               const T* w, bool add, T* dx, std::uint32_t slots, float* partials) {
  const std::uint32_t packs = n / V, k = packs <= kBackThreads ? 1 : packs <= 2 * kBackThreads ? 2 : 4;
  const std::uint32_t lanes = whole_warps(divide_up(packs, k));
  if (lanes > kBackThreads)
    return launch(rms_norm_bwd_long_kernel<T, V>, dim3(slots), dim3(1024), 0, stream, rows, n, dy, x, rstd, w, add, dx, partials);
  const dim3 block(lanes * (kBackThreads / lanes));
  const auto kernel = k == 1 ? rms_norm_bwd_kernel<T, V, 1> : k == 2 ? rms_norm_bwd_kernel<T, V, 2> : rms_norm_bwd_kernel<T, V, 4>;
  return launch(kernel, dim3(slots), block, 0, stream, rows, n, dy, x, rstd, w, add, dx, lanes, partials);
}

// ---- slots -------------------------------------------------------------------------------------------------------------
// A block has 32 columns. Its 8 warps bring many slots at once to shared memory; one warp then adds them in their order.
constexpr std::uint32_t kSlotWarps = 8, kSlotsAtOnce = 256;

__global__ __launch_bounds__(kSlotWarps * 32) void sum_slots_kernel(std::uint32_t slots, std::uint32_t n, std::uint32_t ld,
                                                                   const float* __restrict__ partials, bool overwrite, float* grad) {
  __shared__ float staged[kSlotsAtOnce][32];
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float total = 0;
  for (std::uint32_t base = 0; base < slots; base += kSlotsAtOnce) {
    const std::uint32_t count = slots - base < kSlotsAtOnce ? slots - base : kSlotsAtOnce;
    if (column < n) {
#pragma unroll 8
      for (std::uint32_t s = warp; s < count; s += kSlotWarps) staged[s][lane] = partials[std::uint64_t{base + s} * ld + column];
    }
    __syncthreads();
    if (warp == 0 && column < n) {
#pragma unroll 16
      for (std::uint32_t s = 0; s < count; ++s) total = base + s == 0 ? staged[0][lane] : total + staged[s][lane];
    }
    __syncthreads();
  }
  if (warp == 0 && column < n) grad[column] = overwrite ? total : grad[column] + total;
}

}  // namespace

template <class T>
cudaError_t rms_norm(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const T* w, float eps, T* y, float* rstd) {
  if (rows == 0 || n == 0) return cudaSuccess;
  return wide_rows(n, x, w, y) ? rms_norm_packs<T, kWide<T>>(stream, rows, n, x, w, eps, y, rstd)
                               : rms_norm_packs<T, 1>(stream, rows, n, x, w, eps, y, rstd);
}

// Without rows the partial sums are still zeros that somebody reads.
template <class T>
cudaError_t rms_norm_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* dy, const T* x, const float* rstd,
                         const T* w, bool add, T* dx, std::uint32_t slots, float* partials) {
  if (slots == 0 || n == 0) return cudaSuccess;
  return wide_rows(n, dy, x, w, dx) ? rms_norm_bwd_packs<T, kWide<T>>(stream, rows, n, dy, x, rstd, w, add, dx, slots, partials)
                                    : rms_norm_bwd_packs<T, 1>(stream, rows, n, dy, x, rstd, w, add, dx, slots, partials);
}

cudaError_t sum_slots(cudaStream_t stream, std::uint32_t slots, std::uint32_t n, std::uint32_t ld, const float* partials,
                      bool overwrite, float* grad) {
  return launch(sum_slots_kernel, dim3(static_cast<unsigned>(divide_up(n, 32))), dim3(kSlotWarps * 32), 0, stream, slots, n, ld,
                partials, overwrite, grad);
}

#define TRAINHOST_NORMS(T)                                                                                                       \
  template cudaError_t rms_norm<T>(cudaStream_t, std::uint64_t, std::uint32_t, const T*, const T*, float, T*, float*);           \
  template cudaError_t rms_norm_bwd<T>(cudaStream_t, std::uint64_t, std::uint32_t, const T*, const T*, const float*, const T*,   \
                                       bool, T*, std::uint32_t, float*);
TRAINHOST_NORMS(float)
TRAINHOST_NORMS(Bf16)
#undef TRAINHOST_NORMS

}  // namespace trainhost::cuda
