// Cross-entropy over rows of logits, with its gradient in place, and the sum of losses. A row comes from
// memory once as far as shared memory can hold it for the second pass. Logits are never written without a
// scale.
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

constexpr std::int32_t kIgnored = -100;  // target of a token that counts for nothing
constexpr int kLoads = 4;                // in flight of a thread

// Results of bf16 runs have 8 bits, so the instruction of some 21 bits serves them.
__device__ __forceinline__ float exponential(float x, float) { return expf(x); }
__device__ __forceinline__ float exponential(float x, Bf16) { return __expf(x); }

/// Maximum of what was seen, and the sum of exp(x - maximum). The least finite number stands for "nothing
/// yet", so that no difference of infinities arises; a NaN among the logits gets into the sum and stays
/// there.
struct Online {
  float top = -3.402823466e38f, sum = 0;
  template <class T, int V>
  __device__ __forceinline__ void take(const Floats<V>& x, T type) {
    float highest = x[0];
#pragma unroll
    for (int e = 1; e < V; ++e) highest = fmaxf(highest, x[e]);
    if (highest > top) {
      sum *= exponential(top - highest, type);
      top = highest;
    }
#pragma unroll
    for (int e = 0; e < V; ++e) sum += exponential(x[e] - top, type);
  }
};

// A row may begin anywhere (odd vocabularies): up to V - 1 single elements, then packs on 16-byte boundaries,
// then singles. The first `kept` packs stay in dynamic shared memory, each for the thread that brought it.
template <class T>
__global__ __launch_bounds__(1024) void cross_entropy_kernel(std::uint64_t vocab, T* logits,
                                                             const std::int32_t* __restrict__ targets,
                                                             const double* __restrict__ scale, float* losses,
                                                             std::uint32_t kept) {
  constexpr int V = kWide<T>;
  __shared__ float tops[32], sums[32];
  Pack<T, V>* shelf = dynamic_shared<Pack<T, V>>();
  T* row = logits + blockIdx.x * vocab;
  const std::int32_t target = targets[blockIdx.x];
  const std::uint32_t me = threadIdx.x, threads = blockDim.x;
  std::uint64_t head = (16 - reinterpret_cast<std::uintptr_t>(row) % 16) % 16 / sizeof(T);
  if (head > vocab) head = vocab;
  const std::uint64_t packs = (vocab - head) / V,
                      tail = head + packs * V;  // singles: [0, head) and [tail, vocab)
  T* body = row + head;

  if (target == kIgnored) {
    if (me == 0) losses[blockIdx.x] = 0;
    if (scale == nullptr) return;
    const Floats<1> zero{};
    for (std::uint64_t i = me; i < head; i += threads) store_floats(row + i, zero);
    for (std::uint64_t i = me; i < packs; i += threads) store(body + i * V, zeros<T, V>());
    for (std::uint64_t i = tail + me; i < vocab; i += threads) store_floats(row + i, zero);
    return;
  }

  float of_target = 0;
  if (me == 0)
    of_target = load_floats<1>(row + target)[0];  // before the barrier behind which the row is overwritten
  Online online;
  for (std::uint64_t i = me; i < head; i += threads) online.take(load_floats<1>(row + i), T{});
  for (std::uint64_t i = tail + me; i < vocab; i += threads) online.take(load_floats<1>(row + i), T{});
  for (std::uint64_t i = me; i < packs; i += kLoads * threads) {
    Pack<T, V> p[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (i + k * threads < packs) p[k] = load<V>(body + (i + k * threads) * V);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      if (i + k * threads >= packs) continue;
      if (i + k * threads < kept) shelf[i + k * threads] = p[k];
      online.take(unpack(p[k]), T{});
    }
  }

  float top = warp_max(online.top), sum = warp_sum(online.sum * expf(online.top - top));
  if (me % 32 == 0) tops[me / 32] = top, sums[me / 32] = sum;
  __syncthreads();
  const bool there = me % 32 < threads / 32;
  const float warp_top = tops[there ? me % 32 : 0];
  top = warp_max(warp_top);
  sum = warp_sum(there ? sums[me % 32] * expf(warp_top - top) : 0.0f);
  if (me == 0) losses[blockIdx.x] = top + logf(sum) - of_target;
  if (scale == nullptr) return;

  const float wanted = static_cast<float>(*scale), factor = wanted / sum;
  const auto single = [&](std::uint64_t i) {
    const float p = exponential(load_floats<1>(row + i)[0] - top, T{}) * factor;
    store_floats(row + i, Floats<1>{{i == static_cast<std::uint64_t>(target) ? p - wanted : p}});
  };
  for (std::uint64_t i = me; i < head; i += threads) single(i);
  for (std::uint64_t i = tail + me; i < vocab; i += threads) single(i);
  for (std::uint64_t i = me; i < packs; i += kLoads * threads) {
    Pack<T, V> p[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::uint64_t at = i + k * threads;
      if (at < packs) p[k] = at < kept ? shelf[at] : load<V>(body + at * V);
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::uint64_t at = i + k * threads;
      if (at >= packs) continue;
      Floats<V> x = unpack(p[k]);
      const std::uint64_t hit =
          static_cast<std::uint64_t>(target) - head - at * V;  // wraps when the target is elsewhere
#pragma unroll
      for (int e = 0; e < V; ++e) {
        x[e] = exponential(x[e] - top, T{}) * factor;
        if (hit == static_cast<std::uint64_t>(e)) x[e] -= wanted;
      }
      store_floats(body + at * V, x);
    }
  }
}

constexpr int kSumThreads = 1024;

// Thread t: losses t, t + 1024, ... in that order; then a tree.
__global__ __launch_bounds__(kSumThreads) void add_losses_kernel(std::uint64_t rows,
                                                                 const float* __restrict__ losses,
                                                                 double* sum) {
  __shared__ double shared[32];
  double total = 0;
#pragma unroll 8
  for (std::uint64_t i = threadIdx.x; i < rows; i += kSumThreads) total += losses[i];
  total = sum_of_block(total, shared);
  if (threadIdx.x == 0) *sum += total;
}

/// Bytes of a row that a block keeps. Up to kSmallRow two blocks of 512 threads share a multiprocessor's 228
/// KiB, and one reads while the other writes; beyond, one of 1024 has it, and what exceeds kMostKept comes
/// from memory or L2 again.
constexpr std::uint64_t kSmallRow = 112 * 1024, kMostKept = 224 * 1024;

}  // namespace

template <class T>
cudaError_t cross_entropy(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, T* logits,
                          const std::int32_t* targets, const double* scale, float* losses) {
  if (rows == 0 || vocab == 0) return cudaSuccess;
  std::uint64_t kept = 0;
  std::uint32_t threads = 512;
  if (scale != nullptr) {
    int device = 0, most = 0;
    cudaError_t asked = cudaGetDevice(&device);
    if (asked == cudaSuccess)
      asked = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (asked != cudaSuccess) return asked;
    const std::uint64_t fixed = 1024;  // what the kernel has of its own, and the system's share
    const std::uint64_t room = static_cast<std::uint64_t>(most) < kMostKept + fixed
                                   ? static_cast<std::uint64_t>(most) - fixed
                                   : kMostKept;
    kept = vocab * sizeof(T) / 16;
    if (kept * 16 > kSmallRow) threads = 1024;
    if (kept * 16 > room) kept = room / 16;
  }
  const std::uint64_t packs = divide_up(vocab, kWide<T>);
  if (packs < threads) threads = whole_warps(packs);
  return launch(cross_entropy_kernel<T>, dim3(static_cast<unsigned>(rows)), dim3(threads), kept * 16, stream,
                vocab, logits, targets, scale, losses, static_cast<std::uint32_t>(kept));
}

cudaError_t add_losses(cudaStream_t stream, std::uint64_t rows, const float* losses, double* sum) {
  if (rows == 0) return cudaSuccess;
  return launch(add_losses_kernel, dim3(1), dim3(kSumThreads), 0, stream, rows, losses, sum);
}

template cudaError_t cross_entropy<float>(cudaStream_t, std::uint64_t, std::uint64_t, float*,
                                          const std::int32_t*, const double*, float*);
template cudaError_t cross_entropy<Bf16>(cudaStream_t, std::uint64_t, std::uint64_t, Bf16*,
                                         const std::int32_t*, const double*, float*);

}  // namespace trainhost::cuda
