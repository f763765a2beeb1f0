// RMS norm of the q and k heads inside rows of qkv, in place, and its gradient. Heads are short, so a part of
// a warp processes one, and its sum needs no barrier. The v heads are not changed. Interface:
// kernel_functions.hpp.
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

/// Division of heads of d elements: `lanes` neighbouring lanes (a power of two up to 32) process a head, k
/// packs of v elements each.
struct HeadCut {
  std::uint32_t lanes = 1, k;
  HeadCut(std::uint32_t d, std::uint32_t v) {
    const std::uint32_t packs = d / v;
    while (lanes < 32 && lanes < packs) lanes *= 2;
    k = static_cast<std::uint32_t>(divide_up(packs, lanes));
  }
};
// The largest number of packs per lane that kernels are instantiated for. Heads of up to 512 (f32) or 1024
// (bf16) elements with 16-byte packs, up to 512 with single elements.
constexpr std::uint32_t kMostWide = 4, kMostSingle = 16;

constexpr int kThreads = 256;

template <class T, int V, int K>
__global__ __launch_bounds__(kThreads) void qk_norm_kernel(std::uint64_t rows, std::uint32_t heads,
                                                           std::uint32_t kv_heads, std::uint32_t d, T* qkv,
                                                           const T* __restrict__ wq, const T* __restrict__ wk,
                                                           float eps, T* pre, float* rstd,
                                                           std::uint32_t lanes) {
  // With more packs per head, a second head would take too many registers.
  constexpr int kHeads = K <= 2 ? 2 : 1;  // heads per lane; their loads are issued together
  const std::uint32_t both = heads + kv_heads, width = both + kv_heads, lane = threadIdx.x % lanes,
                      groups = kThreads / lanes;
  // An item is one q or k head of one row; item = row * both + head.
  const std::uint64_t items = rows * both,
                      first = std::uint64_t{blockIdx.x} * groups * kHeads + threadIdx.x / lanes;
  Pack<T, V> x[kHeads][K], w[kHeads][K];
  T* from[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const std::uint64_t item = first + h * groups, row = divide(item, both);
    const std::uint32_t head = static_cast<std::uint32_t>(item - row * both);
    const T* weight = head < heads ? wq : wk;
    from[h] = qkv + (row * width + head) * d;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const std::uint32_t i = (lane + k * lanes) * V;
      // Lanes beyond the head or the last item compute with zeros: lanes_sum() below needs every lane.
      const bool valid = item < items && i < d;
      x[h][k] = valid ? load<V>(from[h] + i) : zeros<T, V>();
      w[h][k] = valid ? load<V>(weight + i) : zeros<T, V>();
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const std::uint64_t item = first + h * groups;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const Floats<V> f = unpack(x[h][k]);
#pragma unroll
      for (int e = 0; e < V; ++e) sum = fmaf(f[e], f[e], sum);
    }
    // Before `continue`: all lanes must take part in the sum.
    const float scale = rsqrtf(lanes_sum(sum, lanes) / static_cast<float>(d) + eps);
    if (item >= items) continue;
    if (lane == 0) rstd[item] = scale;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const std::uint32_t i = (lane + k * lanes) * V;
      if (i >= d) continue;
      Floats<V> f = unpack(x[h][k]);
      const Floats<V> g = unpack(w[h][k]);
#pragma unroll
      for (int e = 0; e < V; ++e) f[e] = f[e] * scale * g[e];
      // The input of the norm is saved before the row is overwritten; both are still in registers.
      store(pre + item * d + i, x[h][k]);
      store_floats(from[h] + i, f);
    }
  }
}

constexpr int kBackThreads = 512;

// A block processes the rows of one slot: first all q heads, then all k heads, because they have different
// weights. Lanes keep their part of the weight's gradient in registers; at the end of each of the two parts,
// the groups of the block are added in order.
template <class T, int V, int K>
__global__ __launch_bounds__(kBackThreads) void qk_norm_bwd_kernel(
    std::uint64_t rows, std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t d, T* dqkv,
    const T* __restrict__ pre, const float* __restrict__ rstd, const T* __restrict__ wq,
    const T* __restrict__ wk, std::uint32_t lanes, float* partials) {
  constexpr int kHeads = K <= 2 ? 2 : 1;
  __shared__ float merged[kBackThreads * V];
  const std::uint32_t both = heads + kv_heads, width = both + kv_heads;
  const std::uint32_t lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = kBackThreads / lanes;
  const std::uint64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  // A slot has the rows [rows*s/slots, rows*(s+1)/slots), as in rms_norm_bwd(): its sums depend on the shape
  // only.
  const float inverse_d = 1.0f / static_cast<float>(d);
  for (int part = 0; part < 2; ++part) {
    const std::uint32_t own = part == 0 ? heads : kv_heads, shift = part == 0 ? 0 : heads;
    const T* weight = part == 0 ? wq : wk;
    Pack<T, V> w[K];
    Floats<V> total[K] = {};
#pragma unroll
    for (int k = 0; k < K; ++k)
      w[k] = (lane + k * lanes) * V < d ? load<V>(weight + (lane + k * lanes) * V) : zeros<T, V>();
    const std::uint64_t items = (end - begin) * own;
    for (std::uint64_t base = 0; base < items;
         base += groups * kHeads) {  // equally often for all threads: lanes_sum() needs every lane
      Pack<T, V> dy[kHeads][K], x[kHeads][K];
      float scale[kHeads];
      T* head_at[kHeads];
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const std::uint64_t item = base + group + h * groups, of_slot = divide(item, own),
                            row = begin + of_slot;
        const std::uint32_t head = shift + static_cast<std::uint32_t>(item - of_slot * own);
        head_at[h] = dqkv + (row * width + head) * d;
        // With 0, an item beyond the end adds nothing to the gradient of the weight.
        scale[h] = item < items ? rstd[row * both + head] : 0.0f;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const std::uint32_t i = (lane + k * lanes) * V;
          const bool valid = item < items && i < d;
          dy[h][k] = valid ? load<V>(head_at[h] + i) : zeros<T, V>();
          x[h][k] = valid ? load<V>(pre + (row * both + head) * d + i) : zeros<T, V>();
        }
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float dot = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const Floats<V> g = unpack(dy[h][k]), a = unpack(x[h][k]), b = unpack(w[k]);
#pragma unroll
          for (int e = 0; e < V; ++e) {
            const float product = g[e] * a[e];
            dot = fmaf(product, b[e], dot);
            total[k][e] = fmaf(product, scale[h], total[k][e]);
          }
        }
        // dx = rstd (dy w - x rstd^2 mean(dy w x))
        const float back = lanes_sum(dot, lanes) * inverse_d * scale[h] * scale[h];
        if (base + group + h * groups >= items) continue;
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const std::uint32_t i = (lane + k * lanes) * V;
          if (i >= d) continue;
          const Floats<V> g = unpack(dy[h][k]), a = unpack(x[h][k]), b = unpack(w[k]);
          Floats<V> out;
#pragma unroll
          for (int e = 0; e < V; ++e) out[e] = scale[h] * (g[e] * b[e] - a[e] * back);
          store_floats(head_at[h] + i, out);
        }
      }
    }
    // partials: [slots, 2, d]. Groups are added through shared memory, one piece of columns per pass, so that
    // its size does not depend on d.
    float* to = partials + (std::uint64_t{blockIdx.x} * 2 + part) * d;
    const std::uint32_t piece = lanes * V;  // columns of one k
#pragma unroll
    for (int k = 0; k < K; ++k) {
      __syncthreads();  // the previous piece has been read
#pragma unroll
      for (int e = 0; e < V; ++e) merged[group * piece + lane * V + e] = total[k][e];
      __syncthreads();
      const std::uint32_t column = k * piece + threadIdx.x;
      if (threadIdx.x < piece && column < d) {
        float sum = merged[threadIdx.x];
        for (std::uint32_t g = 1; g < groups; ++g) sum += merged[g * piece + threadIdx.x];
        to[column] = sum;
      }
    }
  }
}

template <class T, int V>
cudaError_t qk_norm_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads,
                          std::uint32_t kv_heads, std::uint32_t d, T* qkv, const T* wq, const T* wk,
                          float eps, T* pre, float* rstd) {
  // Loops over packs are unrolled, so a kernel exists per number of packs; kMost also serves those in
  // between.
  const HeadCut cut(d, V);
  constexpr std::uint32_t kMost = V == 1 ? kMostSingle : kMostWide;
  if (cut.k > kMost) return cudaErrorInvalidValue;
  const auto kernel = cut.k == 1   ? qk_norm_kernel<T, V, 1>
                      : cut.k == 2 ? qk_norm_kernel<T, V, 2>
                                   : qk_norm_kernel<T, V, kMost>;
  // Must agree with kHeads of the kernel.
  const std::uint64_t items_per_block = std::uint64_t{kThreads} / cut.lanes * (cut.k <= 2 ? 2 : 1);
  const dim3 grid(static_cast<unsigned>(divide_up(rows * (heads + kv_heads), items_per_block)));
  return launch(kernel, grid, dim3(kThreads), 0, stream, rows, heads, kv_heads, d, qkv, wq, wk, eps, pre,
                rstd, cut.lanes);
}

template <class T, int V>
cudaError_t qk_norm_bwd_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads,
                              std::uint32_t kv_heads, std::uint32_t d, T* dqkv, const T* pre,
                              const float* rstd, const T* wq, const T* wk, std::uint32_t slots,
                              float* partials) {
  const HeadCut cut(d, V);
  constexpr std::uint32_t kMost = V == 1 ? kMostSingle : kMostWide;
  if (cut.k > kMost) return cudaErrorInvalidValue;
  const auto kernel = cut.k == 1   ? qk_norm_bwd_kernel<T, V, 1>
                      : cut.k == 2 ? qk_norm_bwd_kernel<T, V, 2>
                                   : qk_norm_bwd_kernel<T, V, kMost>;
  return launch(kernel, dim3(slots), dim3(kBackThreads), 0, stream, rows, heads, kv_heads, d, dqkv, pre, rstd,
                wq, wk, cut.lanes, partials);
}

}  // namespace

template <class T>
cudaError_t qk_norm(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t kv_heads,
                    std::uint32_t d, T* qkv, const T* wq, const T* wk, float eps, T* pre, float* rstd) {
  if (rows == 0 || d == 0) return cudaSuccess;
  // Heads start at multiples of d inside a row, so 16-byte accesses need d and all bases to be aligned.
  return wide_rows(d, qkv, wq, wk, pre)
             ? qk_norm_packs<T, kWide<T>>(stream, rows, heads, kv_heads, d, qkv, wq, wk, eps, pre, rstd)
             : qk_norm_packs<T, 1>(stream, rows, heads, kv_heads, d, qkv, wq, wk, eps, pre, rstd);
}

template <class T>
cudaError_t qk_norm_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t kv_heads,
                        std::uint32_t d, T* dqkv, const T* pre, const float* rstd, const T* wq, const T* wk,
                        std::uint32_t slots, float* partials) {
  if (slots == 0 || d == 0)
    return cudaSuccess;  // rows == 0 is not skipped: sum_slots() reads the partial sums, which must become 0
  return wide_rows(d, dqkv, pre, wq, wk)
             ? qk_norm_bwd_packs<T, kWide<T>>(stream, rows, heads, kv_heads, d, dqkv, pre, rstd, wq, wk,
                                              slots, partials)
             : qk_norm_bwd_packs<T, 1>(stream, rows, heads, kv_heads, d, dqkv, pre, rstd, wq, wk, slots,
                                       partials);
}

#define TRAINHOST_HEAD_NORMS(T)                                                                             \
  template cudaError_t qk_norm<T>(cudaStream_t, std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t, \
                                  T*, const T*, const T*, float, T*, float*);                               \
  template cudaError_t qk_norm_bwd<T>(cudaStream_t, std::uint64_t, std::uint32_t, std::uint32_t,            \
                                      std::uint32_t, T*, const T*, const float*, const T*, const T*,        \
                                      std::uint32_t, float*);
TRAINHOST_HEAD_NORMS(float)
TRAINHOST_HEAD_NORMS(Bf16)
#undef TRAINHOST_HEAD_NORMS

}  // namespace trainhost::cuda
