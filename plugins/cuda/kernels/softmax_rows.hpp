// Shared by the kernels of cross-entropy, which have one block per row of logits: how a row is read, and
// maximum and sum of exponentials of a row. Contains no kernel.
#pragma once
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {

inline constexpr std::int32_t kIgnored = -100;  // target of a token that does not contribute to the loss
inline constexpr int kLoads = 4;                // loads of a thread before the first use

// Results of bf16 runs are rounded to 8 bits, so the approximate instruction (about 21 bits) suffices.
__device__ __forceinline__ float exponential(float x, float) { return expf(x); }
__device__ __forceinline__ float exponential(float x, Bf16) { return __expf(x); }

/// With an odd vocabulary a row may start at any element: [0, head) single elements, then packs at 16-byte
/// boundaries, then [tail, vocab) single elements.
struct RowParts {
  std::uint64_t head, packs, tail;
  template <class T>
  __device__ __forceinline__ RowParts(const T* row, std::uint64_t vocab) {
    constexpr int V = kWide<T>;
    head = (16 - reinterpret_cast<std::uintptr_t>(row) % 16) % 16 / sizeof(T);
    if (head > vocab) head = vocab;
    packs = (vocab - head) / V, tail = head + packs * V;
  }
};

/// Online softmax statistics of one thread: maximum so far, and sum of exp(x - maximum). The maximum starts
/// at the lowest finite float instead of -inf, so that -inf - -inf = NaN cannot occur. A NaN among the logits
/// makes the sum NaN.
struct OnlineSoftmax {
  float top = -3.402823466e38f, sum = 0;
  template <class T, int V>
  __device__ __forceinline__ void add(const Floats<V>& x, T type) {
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
  /// Becomes that of the block: sum_i exp(x - top_i) * exp(top_i - top). All threads of the block call it and
  /// get the same bits. tops, sums: shared memory, 32 elements each.
  __device__ __forceinline__ void combine(float* tops, float* sums) {
    const std::uint32_t me = threadIdx.x, warps = blockDim.x / 32;
    const float of_warp = warp_max(top);
    sum = warp_sum(sum * expf(top - of_warp));
    if (me % 32 == 0) tops[me / 32] = of_warp, sums[me / 32] = sum;
    __syncthreads();
    const bool valid = me % 32 < warps;  // lanes without a warp repeat warp 0 in the maximum and add 0
    const float warp_top = tops[valid ? me % 32 : 0];
    top = warp_max(warp_top);
    sum = warp_sum(valid ? sums[me % 32] * expf(warp_top - top) : 0.0f);
  }
};

}  // namespace trainhost::cuda
