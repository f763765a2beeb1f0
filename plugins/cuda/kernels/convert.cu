// Rounds f32 to bf16: used when weights are loaded into a bf16 run. There is no kernel for the other
// direction, because kernels widen bf16 values where they use them. And dequantizes frozen weights in NF4.
// Interface: kernel_functions.hpp, adapter_kernels.hpp.
#include "core/model/dynamic_map.hpp"
#include "plugins/cuda/kernels/adapter_kernels.hpp"
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

// ---- NF4
// The numbers that codes stand for, as a kernel argument.
struct Nf4Numbers {
  float values[16], scales[256];
};

constexpr std::uint32_t kElementsPerThread = 8, kGroups = 8,  // of a block: 8 times 8 elements per thread
    kNf4Chunk = kThreads * kElementsPerThread * kGroups;

__device__ __forceinline__ float read_f32(const unsigned char* p) {  // of any alignment
  return __uint_as_float(p[0] | std::uint32_t{p[1]} << 8 | std::uint32_t{p[2]} << 16 |
                         std::uint32_t{p[3]} << 24);
}

/// The scale of a block. Not contracted to an FMA: the bits are those of nf4::read_scales().
__device__ __forceinline__ float nf4_scale(const nf4::Layout& l, const unsigned char* bytes,
                                           std::uint64_t block, float mean, const float* scales) {
  if (l.scale_blocks == 0) return read_f32(bytes + 4 * block);
  const float scale = read_f32(bytes + 4 * (block / nf4::kScaleBlock + 1));
  return __fadd_rn(__fmul_rn(scales[bytes[l.scales + block]], scale), mean);
}

// A thread writes 8 neighbouring elements, which have one scale, from 4 bytes of codes. WIDE: the matrix
// starts at a multiple of 16 bytes.
template <class T, bool WIDE>
__global__ __launch_bounds__(kThreads) void dequantize_nf4_kernel(const nf4::Layout l,
                                                                  const Nf4Numbers numbers,
                                                                  const unsigned char* __restrict__ bytes,
                                                                  T* __restrict__ matrix) {
  // In shared memory, because every thread reads another one.
  __shared__ float values[16], scales[256];
  scales[threadIdx.x] = numbers.scales[threadIdx.x];
  if (threadIdx.x < 16) values[threadIdx.x] = numbers.values[threadIdx.x];
  __syncthreads();
  const float mean = l.scale_blocks ? read_f32(bytes) : 0.0f;
  for (std::uint32_t g = 0; g < kGroups; ++g) {
    const std::uint64_t first =
        std::uint64_t{blockIdx.x} * kNf4Chunk + (g * kThreads + threadIdx.x) * kElementsPerThread;
    if (first >= l.elements) return;
    const float scale = nf4_scale(l, bytes, first / nf4::kBlock, mean, scales);
    const unsigned char* codes = bytes + l.codes + first / 2;
    const std::uint32_t n = l.elements - first < kElementsPerThread
                                ? static_cast<std::uint32_t>(l.elements - first)
                                : kElementsPerThread;
    Floats<8> f{};
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (2 * i >= n) continue;
      const std::uint32_t two = codes[i];
      f[2 * i] = __fmul_rn(values[two >> 4], scale), f[2 * i + 1] = __fmul_rn(values[two & 15], scale);
    }
    if (WIDE && n == kElementsPerThread) {
      if constexpr (sizeof(T) == 2) {
        store_floats(matrix + first, f);
      } else {
        store_floats(matrix + first, Floats<4>{{f[0], f[1], f[2], f[3]}});
        store_floats(matrix + first + 4, Floats<4>{{f[4], f[5], f[6], f[7]}});
      }
      continue;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kElementsPerThread; ++i)
      if (i < n) matrix[first + i] = from_float<T>(f[i]);
  }
}

}  // namespace

template <class T>
cudaError_t dequantize_nf4(cudaStream_t stream, const nf4::Layout& layout, const std::byte* bytes,
                           T* matrix) {
  Nf4Numbers numbers;
  for (std::size_t i = 0; i < 16; ++i) numbers.values[i] = nf4::kValues[i];
  for (std::size_t i = 0; i < 256; ++i) numbers.scales[i] = dynamic_map(true)[i];
  const bool wide = reinterpret_cast<std::uintptr_t>(matrix) % 16 == 0;
  return launch(wide ? dequantize_nf4_kernel<T, true> : dequantize_nf4_kernel<T, false>,
                dim3(static_cast<unsigned>(divide_up(layout.elements, kNf4Chunk))), dim3(kThreads), 0, stream,
                layout, numbers, reinterpret_cast<const unsigned char*>(bytes), matrix);
}
template cudaError_t dequantize_nf4<float>(cudaStream_t, const nf4::Layout&, const std::byte*, float*);
template cudaError_t dequantize_nf4<Bf16>(cudaStream_t, const nf4::Layout&, const std::byte*, Bf16*);

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
