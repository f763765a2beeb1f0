// Rounds f32 to bf16: used when weights are loaded into a bf16 run. There is no kernel for the other
// direction, because kernels widen bf16 values where they use them. Interface: kernel_functions.hpp.
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

constexpr int kThreads = 256, kUnroll = 2;

// Each thread converts kUnroll packs of V elements, blockDim packs apart, so that the accesses of a warp are
// contiguous. All loads are issued before the first store. V = 8, or 1 if a pointer is not 16-byte aligned.
template <int V>
__global__ __launch_bounds__(kThreads) void to_bf16_kernel(std::uint64_t n, const float* __restrict__ from,
                                                           Bf16* __restrict__ to) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * (kThreads * kUnroll * V) + threadIdx.x * V;
  Floats<V> f[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const std::uint64_t i = first + k * kThreads * V;
    if (i + V <= n) f[k] = load_f32<V>(from + i);
  }
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const std::uint64_t i = first + k * kThreads * V;
    if (i + V <= n)
      store_floats(to + i, f[k]);
    else  // the last, incomplete pack
      for (std::uint64_t j = i; j < n; ++j) to[j] = __float2bfloat16_rn(from[j]);
  }
}

}  // namespace

cudaError_t to_bf16(cudaStream_t stream, std::uint64_t n, const float* from, Bf16* to) {
  if (n == 0) return cudaSuccess;
  const bool wide =
      reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
  const std::uint64_t elements_per_block = std::uint64_t{kThreads} * kUnroll * (wide ? 8 : 1);
  const dim3 grid(static_cast<unsigned>(divide_up(n, elements_per_block)));
  return wide ? launch(to_bf16_kernel<8>, grid, dim3(kThreads), 0, stream, n, from, to)
              : launch(to_bf16_kernel<1>, grid, dim3(kThreads), 0, stream, n, from, to);
}

}  // namespace trainhost::cuda
