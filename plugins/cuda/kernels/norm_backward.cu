// Gradient of the RMS norm over rows: of its input and of its weight. Every array is read once and written
// once. A block processes the rows of one slot, keeps its part of the weight's gradient in registers and
// writes it as one partial sum; sum_slots() (norm.cu) adds the slots. Interface: kernel_functions.hpp.
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

// A block iterates over the rows of its slot. `lanes` threads process a row, K packs per thread; if rows are
// short, several groups of threads process different rows at the same time (only with K == 1). The part of
// the weight's gradient stays in registers. If registers permit, the next row is loaded while the current one
// is summed (kAhead).
constexpr std::uint32_t kBackThreads = 512;

template <class T, int V, int K>
__global__ __launch_bounds__(kBackThreads, K == 1 ? 2 : 1) void rms_norm_bwd_kernel(
    std::uint64_t rows, std::uint32_t n, const T* dy, const T* x, const float* __restrict__ rstd,
    const T* __restrict__ w, bool add, T* dx, std::uint32_t lanes, float* __restrict__ partials) {
  constexpr bool kAhead = K <= 2,
                 kSpare = K * V <= 16;          // registers suffice to keep w, and to load dx early
  __shared__ float sums[2][kBackThreads / 32];  // alternating, so that one barrier per row suffices
  __shared__ float
      merged[K == 1 ? kBackThreads * V : 1];  // sums of the groups; several groups only if K == 1
  const std::uint32_t groups = blockDim.x / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes,
                      packs = n / V;
  const std::uint32_t warp = threadIdx.x / 32, warps = lanes / 32;
  const std::uint64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  const float inverse_n = 1.0f / static_cast<float>(n);
  bool mine[K];  // pack k of this thread is inside the row
  Pack<T, V> weights[K], dy_now[K], x_now[K], dy_next[K], x_next[K];
  Floats<V> total[K] = {};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    mine[k] = lane + k * lanes < packs;
    if (kSpare) weights[k] = mine[k] ? load<V>(w + (lane + k * lanes) * V) : zeros<T, V>();
  }
  const auto weight = [&](int k) {
    if (kSpare) return weights[k];
    return mine[k] ? load<V>(w + (lane + k * lanes) * V) : zeros<T, V>();
  };
  const auto fetch = [&](std::uint64_t row, Pack<T, V>(&dy_to)[K], Pack<T, V>(&x_to)[K], float& scale) {
    const std::uint64_t first = row * n + lane * V;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const bool valid = mine[k] && row < end;
      dy_to[k] = valid ? load<V>(dy + first + k * lanes * V) : zeros<T, V>();
      x_to[k] = valid ? load<V>(x + first + k * lanes * V) : zeros<T, V>();
    }
    scale = row < end ? rstd[row] : 0.0f;
  };
  float scale_next = 0;
  if (kAhead) fetch(begin + group, dy_next, x_next, scale_next);
  std::uint32_t parity = 0;  // of the iteration: selects one of the two arrays of sums
  // All threads iterate equally often, because the loop contains a barrier; groups without a row have zeros.
  for (std::uint64_t base = begin; base < end; base += groups, parity ^= 1) {
    const std::uint64_t row = base + group, first = row * n + lane * V;
    float scale = scale_next;
    if (kAhead) {
#pragma unroll
      for (int k = 0; k < K; ++k) dy_now[k] = dy_next[k], x_now[k] = x_next[k];
      fetch(row + groups, dy_next, x_next, scale_next);
    } else {
      fetch(row, dy_now, x_now, scale);
    }
    const auto fetch_old = [&](int k) {
      return add && mine[k] && row < end ? load<V>(dx + first + k * lanes * V) : zeros<T, V>();
    };
    Pack<T, V> old[K];
    if (kSpare) {
#pragma unroll
      for (int k = 0; k < K; ++k) old[k] = fetch_old(k);
    }
    float dot = 0;  // sum of dy * w * x over the row
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const Floats<V> g = unpack(dy_now[k]), a = unpack(x_now[k]), b = unpack(weight(k));
#pragma unroll
      for (int e = 0; e < V; ++e) {
        const float product = g[e] * a[e];
        dot = fmaf(product, b[e], dot);
        total[k][e] = fmaf(product, scale, total[k][e]);
      }
    }
    dot = warp_sum(dot);
    if (warps > 1) {
      if (threadIdx.x % 32 == 0) sums[parity][warp] = dot;
      __syncthreads();
      dot = warp_sum(threadIdx.x % 32 < warps ? sums[parity][group * warps + threadIdx.x % 32] : 0.0f);
    }
    // dx = rstd (dy w - x rstd^2 mean(dy w x))
    const float back = dot * inverse_n * scale * scale;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!mine[k] || row >= end) continue;
      const Floats<V> g = unpack(dy_now[k]), a = unpack(x_now[k]), b = unpack(weight(k));
      Floats<V> d = unpack(kSpare ? old[k] : fetch_old(k));
#pragma unroll
      for (int e = 0; e < V; ++e) d[e] = fmaf(scale, g[e] * b[e] - a[e] * back, d[e]);
      store_floats(dx + first + k * lanes * V, d);
    }
  }

  // Writes the partial sum of this slot; several groups are added in order first.
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

// Rows that do not fit into registers are read twice, and the weight's gradient is summed in `partials` in
// device memory; each column belongs to one thread.
template <class T, int V>
__global__ __launch_bounds__(1024) void rms_norm_bwd_long_kernel(std::uint64_t rows, std::uint32_t n,
                                                                 const T* dy, const T* x,
                                                                 const float* __restrict__ rstd,
                                                                 const T* __restrict__ w, bool add, T* dx,
                                                                 float* partials) {
  __shared__ float shared[2][32];
  const std::uint64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  const std::uint32_t packs = n / V;
  partials += std::uint64_t{blockIdx.x} * n;
  for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x)
    for (int e = 0; e < V; ++e) partials[std::uint64_t{i} * V + e] = 0;
  std::uint32_t parity = 0;
  for (std::uint64_t row = begin; row < end; ++row, parity ^= 1) {
    const T *g_row = dy + row * n, *x_row = x + row * n;
    const float scale = rstd[row];
    float dot = 0;
    for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x) {
      const std::uint64_t at = std::uint64_t{i} * V;
      const Floats<V> g = load_floats<V>(g_row + at), a = load_floats<V>(x_row + at),
                      b = load_floats<V>(w + at);
      for (int e = 0; e < V; ++e) {
        dot = fmaf(g[e] * a[e], b[e], dot);
        partials[at + e] = fmaf(g[e] * a[e], scale, partials[at + e]);
      }
    }
    const float back = sum_of_block(dot, shared[parity]) / static_cast<float>(n) * scale * scale;
    for (std::uint32_t i = threadIdx.x; i < packs; i += blockDim.x) {
      const std::uint64_t at = std::uint64_t{i} * V;
      const Floats<V> g = load_floats<V>(g_row + at), a = load_floats<V>(x_row + at),
                      b = load_floats<V>(w + at);
      Floats<V> d = add ? load_floats<V>(dx + row * n + at) : Floats<V>{};
      for (int e = 0; e < V; ++e) d[e] = fmaf(scale, g[e] * b[e] - a[e] * back, d[e]);
      store_floats(dx + row * n + at, d);
    }
  }
}

template <class T, int V>
cudaError_t rms_norm_bwd_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* dy,
                               const T* x, const float* rstd, const T* w, bool add, T* dx,
                               std::uint32_t slots, float* partials) {
  const std::uint32_t packs = n / V, k = packs <= kBackThreads ? 1 : packs <= 2 * kBackThreads ? 2 : 4;
  const std::uint32_t lanes = whole_warps(divide_up(packs, k));
  if (lanes > kBackThreads)
    return launch(rms_norm_bwd_long_kernel<T, V>, dim3(slots), dim3(1024), 0, stream, rows, n, dy, x, rstd, w,
                  add, dx, partials);
  const dim3 block(lanes * (kBackThreads / lanes));
  const auto kernel = k == 1   ? rms_norm_bwd_kernel<T, V, 1>
                      : k == 2 ? rms_norm_bwd_kernel<T, V, 2>
                               : rms_norm_bwd_kernel<T, V, 4>;
  return launch(kernel, dim3(slots), block, 0, stream, rows, n, dy, x, rstd, w, add, dx, lanes, partials);
}

}  // namespace

// rows == 0 is not skipped: sum_slots() reads the partial sums, which must become 0.
template <class T>
cudaError_t rms_norm_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* dy, const T* x,
                         const float* rstd, const T* w, bool add, T* dx, std::uint32_t slots,
                         float* partials) {
  if (slots == 0 || n == 0) return cudaSuccess;
  return wide_rows(n, dy, x, w, dx)
             ? rms_norm_bwd_packs<T, kWide<T>>(stream, rows, n, dy, x, rstd, w, add, dx, slots, partials)
             : rms_norm_bwd_packs<T, 1>(stream, rows, n, dy, x, rstd, w, add, dx, slots, partials);
}

#define TRAINHOST_NORM_BWD(T)                                                                          \
  template cudaError_t rms_norm_bwd<T>(cudaStream_t, std::uint64_t, std::uint32_t, const T*, const T*, \
                                       const float*, const T*, bool, T*, std::uint32_t, float*);
TRAINHOST_NORM_BWD(float)
TRAINHOST_NORM_BWD(Bf16)
#undef TRAINHOST_NORM_BWD

}  // namespace trainhost::cuda
