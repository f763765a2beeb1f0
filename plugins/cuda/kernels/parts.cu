// Cross-entropy over a vocabulary that ranks divide, in two kernels between which the ranks exchange three
// numbers per token: statistics of the rank's logits, then loss and gradient. One block per row. And the rows
// of a rank with sequence parallelism. Interface: parts_kernels.hpp.
#include "plugins/cuda/kernels/parts_kernels.hpp"
#include "plugins/cuda/kernels/softmax_rows.hpp"

namespace trainhost::cuda {
namespace {

constexpr int kRowThreads = 512;

/// Calls f(pack, first element) for the packs of a thread, kLoads of which are loaded before the first use,
/// and single(element) for the elements outside of packs.
template <class T, class F, class G>
__device__ __forceinline__ void over_row(const T* row, std::uint64_t vocab, F&& f, G&& single) {
  constexpr int V = kWide<T>;
  const std::uint32_t me = threadIdx.x, threads = blockDim.x;
  const auto [head, packs, tail] = RowParts(row, vocab);
  for (std::uint64_t i = me; i < head; i += threads) single(i);
  for (std::uint64_t i = tail + me; i < vocab; i += threads) single(i);
  for (std::uint64_t i = me; i < packs; i += kLoads * threads) {
    Pack<T, V> p[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (i + k * threads < packs) p[k] = load<V>(row + head + (i + k * threads) * V);
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (i + k * threads < packs) f(p[k], head + (i + k * threads) * V);
  }
}

template <class T>
__global__ __launch_bounds__(kRowThreads) void softmax_stats_kernel(std::uint64_t vocab,
                                                                    const T* __restrict__ logits,
                                                                    const std::int32_t* __restrict__ targets,
                                                                    std::int32_t first_token, float* stats) {
  __shared__ float tops[32], sums[32];
  const T* row = logits + blockIdx.x * vocab;
  float* out = stats + std::uint64_t{blockIdx.x} * 3;
  if (targets[blockIdx.x] == kIgnored) {
    if (threadIdx.x < 3) out[threadIdx.x] = 0;
    return;
  }
  OnlineSoftmax online;
  over_row(
      row, vocab, [&](const auto& pack, std::uint64_t) { online.add(unpack(pack), T{}); },
      [&](std::uint64_t i) { online.add(load_floats<1>(row + i), T{}); });
  online.combine(tops, sums);
  if (threadIdx.x != 0) return;
  const std::int64_t target = std::int64_t{targets[blockIdx.x]} - first_token;
  const bool own = target >= 0 && target < static_cast<std::int64_t>(vocab);
  out[0] = online.top, out[1] = online.sum, out[2] = own ? load_floats<1>(row + target)[0] : 0.0f;
}

// Every thread combines the statistics of the parts, in their order.
template <class T>
__global__ __launch_bounds__(kRowThreads) void cross_entropy_of_parts_kernel(
    std::uint64_t vocab, T* logits, const std::int32_t* __restrict__ targets,
    const double* __restrict__ scale, const VocabularyParts parts, const float* __restrict__ stats,
    float* losses) {
  constexpr int V = kWide<T>;
  T* row = logits + blockIdx.x * vocab;
  const std::int32_t target = targets[blockIdx.x];
  if (target == kIgnored) {
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    if (scale == nullptr) return;
    over_row(
        row, vocab, [&](const auto&, std::uint64_t i) { store(row + i, zeros<T, V>()); },
        [&](std::uint64_t i) { store_floats(row + i, Floats<1>{}); });
    return;
  }
  const auto of_part = [&](std::uint32_t p) { return stats + (p * parts.rows + blockIdx.x) * 3; };
  float top = of_part(0)[0], sum = 0, of_target = 0;
  for (std::uint32_t p = 1; p < parts.count; ++p) top = fmaxf(top, of_part(p)[0]);
  for (std::uint32_t p = 0; p < parts.count; ++p) {
    sum += of_part(p)[1] * expf(of_part(p)[0] - top);
    of_target += of_part(p)[2];
  }
  if (threadIdx.x == 0) losses[blockIdx.x] = top + logf(sum) - of_target;
  if (scale == nullptr) return;

  // gradient = softmax * scale - onehot * scale
  const float target_part = static_cast<float>(*scale), factor = target_part / sum;
  const std::uint64_t own = static_cast<std::uint64_t>(std::int64_t{target} - parts.first_token);
  over_row(
      row, vocab,
      [&](const auto& pack, std::uint64_t first) {
        Floats<V> x = unpack(pack);
        const std::uint64_t hit = own - first;  // >= V (or wrapped) if the target is not in this pack
#pragma unroll
        for (int e = 0; e < V; ++e) {
          x[e] = exponential(x[e] - top, T{}) * factor;
          if (hit == static_cast<std::uint64_t>(e)) x[e] -= target_part;
        }
        store_floats(row + first, x);
      },
      [&](std::uint64_t i) {
        const float p = exponential(load_floats<1>(row + i)[0] - top, T{}) * factor;
        store_floats(row + i, Floats<1>{{i == own ? p - target_part : p}});
      });
}

constexpr int kThreads = 256, kUnroll = 2;

// Each thread has kUnroll packs, a block apart. V = 1 if the addresses are not multiples of 16 bytes; the
// elements behind the last whole pack are added one by one.
template <class T, int V>
__global__ __launch_bounds__(kThreads) void take_rows_kernel(std::uint64_t n, const T* __restrict__ sum,
                                                             const T* __restrict__ residual,
                                                             T* __restrict__ y) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * (kThreads * kUnroll * V) + threadIdx.x * V;
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const std::uint64_t i = first + k * kThreads * V;
    if (i + V <= n) {
      Floats<V> x = load_floats<V>(sum + i);
      if (residual != nullptr) {
        const Floats<V> r = load_floats<V>(residual + i);
#pragma unroll
        for (int e = 0; e < V; ++e) x[e] += r[e];
      }
      store_floats(y + i, x);
      continue;
    }
    for (std::uint64_t j = i; j < n; ++j)
      store_floats(y + j, Floats<1>{{load_floats<1>(sum + j)[0] +
                                     (residual != nullptr ? load_floats<1>(residual + j)[0] : 0.0f)}});
  }
}

template <class T>
std::uint32_t threads_of_row(std::uint64_t vocab) {
  const std::uint64_t packs = divide_up(vocab, kWide<T>);
  return packs < kRowThreads ? whole_warps(packs) : kRowThreads;
}

}  // namespace

template <class T>
cudaError_t softmax_stats(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, const T* logits,
                          const std::int32_t* targets, std::int32_t first_token, float* stats) {
  if (rows == 0 || vocab == 0) return cudaSuccess;
  return launch(softmax_stats_kernel<T>, dim3(static_cast<unsigned>(rows)), dim3(threads_of_row<T>(vocab)), 0,
                stream, vocab, logits, targets, first_token, stats);
}

template <class T>
cudaError_t cross_entropy_of_parts(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, T* logits,
                                   const std::int32_t* targets, const double* scale,
                                   const VocabularyParts& parts, const float* stats, float* losses) {
  if (rows == 0 || vocab == 0) return cudaSuccess;
  return launch(cross_entropy_of_parts_kernel<T>, dim3(static_cast<unsigned>(rows)),
                dim3(threads_of_row<T>(vocab)), 0, stream, vocab, logits, targets, scale, parts, stats,
                losses);
}

template <class T>
cudaError_t take_rows(cudaStream_t stream, std::uint64_t n, const T* sum, const T* residual, T* y) {
  if (n == 0) return cudaSuccess;
  const bool wide = wide_rows(0, sum, residual, y);
  const dim3 grid(static_cast<unsigned>(
      divide_up(n, std::uint64_t{kThreads} * kUnroll * static_cast<unsigned>(wide ? kWide<T> : 1))));
  return launch(wide ? take_rows_kernel<T, kWide<T>> : take_rows_kernel<T, 1>, grid, dim3(kThreads), 0,
                stream, n, sum, residual, y);
}

#define TRAINHOST_PARTS(T)                                                                                   \
  template cudaError_t softmax_stats<T>(cudaStream_t, std::uint64_t, std::uint64_t, const T*,                \
                                        const std::int32_t*, std::int32_t, float*);                          \
  template cudaError_t cross_entropy_of_parts<T>(cudaStream_t, std::uint64_t, std::uint64_t, T*,             \
                                                 const std::int32_t*, const double*, const VocabularyParts&, \
                                                 const float*, float*);                                      \
  template cudaError_t take_rows<T>(cudaStream_t, std::uint64_t, const T*, const T*, T*);
TRAINHOST_PARTS(float)
TRAINHOST_PARTS(Bf16)
#undef TRAINHOST_PARTS

}  // namespace trainhost::cuda
