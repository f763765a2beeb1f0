// Attention over whole sequences: selects the implementation, and computes the row sums `delta` that the
// plain gradient reads. Tensor cores for bf16, and for f32 if TF32 products are allowed, where the head size
// has a kernel: products of warpgroups on compute capability 9.0 (attention_wgmma_*.cu), of warps elsewhere
// (attention_mma_*.cu); else f32 FMA arithmetic (attention_plain_*.cu). Attention of one
// generated token: attention_step.cu.
#include <type_traits>

#include "plugins/cuda/kernels/attention_common.hpp"

namespace trainhost::cuda {
namespace attention_detail {
namespace {

constexpr unsigned kDeltaThreads = 256;

// delta[pair] = sum over d of d_o * o, one warp per pair (row, head). o and d_o are [rows, heads, d], so pair
// p starts at element p * d.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(std::uint64_t pairs, unsigned d, const T* __restrict__ d_o, const T* __restrict__ o,
                 float* __restrict__ delta) {
  const std::uint64_t pair =
      static_cast<std::uint64_t>(blockIdx.x) * (kDeltaThreads / kWarp) + threadIdx.x / kWarp;
  if (pair >= pairs) return;  // all lanes of a warp have the same pair, so the shuffles below stay complete
  float sum = 0;
  for (unsigned i = threadIdx.x % kWarp; i < d; i += kWarp)
    sum = fmaf(to_float(d_o[pair * d + i]), to_float(o[pair * d + i]), sum);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) delta[pair] = sum;
}

// The same with 16-byte loads, for f32: kLanes = d * sizeof(T) / 16 consecutive lanes per pair, a power of
// two, so that the butterfly below stays inside a pair. Lanes beyond the last pair take part in the shuffles
// with 0.
template <class T, unsigned kLanes>
__global__ void __launch_bounds__(kDeltaThreads)
    wide_delta_kernel(std::uint64_t pairs, const T* __restrict__ d_o, const T* __restrict__ o,
                      float* __restrict__ delta) {
  const std::uint64_t vector = static_cast<std::uint64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x,
                      pair = vector / kLanes;
  float sum = 0;
  if (pair < pairs) {
    const Vec<T> a = Vec<T>::load(d_o + vector * Vec<T>::kWidth),
                 b = Vec<T>::load(o + vector * Vec<T>::kWidth);
#pragma unroll
    for (unsigned i = 0; i < Vec<T>::kWidth; ++i) sum = fmaf(a.v[i], b.v[i], sum);
  }
#pragma unroll
  for (unsigned lanes = kLanes / 2; lanes != 0; lanes /= 2)
    sum += __shfl_xor_sync(kFullWarp, sum, static_cast<int>(lanes));
  if (pair < pairs && vector % kLanes == 0) delta[pair] = sum;
}

template <class T, unsigned kLanes>
cudaError_t wide_delta(cudaStream_t stream, std::uint64_t pairs, const T* d_o, const T* o, float* delta) {
  const std::uint64_t blocks = (pairs * kLanes + kDeltaThreads - 1) / kDeltaThreads;
  return launch(wide_delta_kernel<T, kLanes>, dim3(static_cast<unsigned>(blocks)), dim3(kDeltaThreads), 0,
                stream, pairs, d_o, o, delta);
}

template <class T>
cudaError_t row_delta(cudaStream_t stream, const AttentionShape& s, const T* d_o, const T* o, float* delta) {
  const std::uint64_t pairs = static_cast<std::uint64_t>(s.sequences) * s.seq * s.heads;
  if constexpr (sizeof(T) == 4) {  // in bf16, heads of these sizes use the tensor cores
    if (s.d == 32) return wide_delta<T, 8>(stream, pairs, d_o, o, delta);
    if (s.d == 64) return wide_delta<T, 16>(stream, pairs, d_o, o, delta);
    if (s.d == 128) return wide_delta<T, 32>(stream, pairs, d_o, o, delta);
  }
  const std::uint64_t blocks = (pairs + kDeltaThreads / kWarp - 1) / (kDeltaThreads / kWarp);
  return launch(delta_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kDeltaThreads), 0, stream, pairs,
                s.d, d_o, o, delta);
}

constexpr std::uint32_t kMaxHeadDim = 256;  // of the plain kernels

template <class T>
bool use_tensor_cores(const AttentionShape& s, F32Products f32) {
  return mma_supports<T>(s.d) && (std::is_same_v<T, Bf16> || f32 == F32Products::kTf32);
}

// Whether kernels with products of warpgroups belong to this build and serve numbers of this type.
#ifdef TRAINHOST_CUDA_WGMMA
template <class T>
constexpr bool kWarpgroups = std::is_same_v<T, Bf16>;
#else
template <class T>
constexpr bool kWarpgroups = false;
#endif

// Products of warpgroups exist on compute capability 9.0 only, neither before nor after it.
[[maybe_unused]] cudaError_t prefer_warpgroups(const AttentionShape& s, bool& prefer) {
  prefer = false;
  if (!wgmma_supports(s.d)) return cudaSuccess;
  int device = 0, major = 0, minor = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  prefer = major == 9 && minor == 0;
  return e;
}

// Replaces a window that covers the whole sequence by 0 (no window): kernels then check the diagonal only,
// and windows fit into an int.
AttentionShape normalise_window(AttentionShape s) {
  if (s.window >= s.seq) s.window = 0;
  return s;
}

}  // namespace
}  // namespace attention_detail

namespace detail = attention_detail;

template <class T>
cudaError_t attention(cudaStream_t stream, const AttentionShape& shape, F32Products f32, const T* qkv, T* o,
                      float* lse) {
  if (shape.d > detail::kMaxHeadDim) return cudaErrorInvalidValue;
  const AttentionShape s = detail::normalise_window(shape);
  if constexpr (detail::kWarpgroups<T>) {
    bool prefer = false;
    if (const cudaError_t e = detail::prefer_warpgroups(s, prefer); e != cudaSuccess) return e;
    if (prefer) return detail::wgmma_forward(stream, s, qkv, o, lse);
  }
  if (detail::use_tensor_cores<T>(s, f32)) return detail::mma_forward(stream, s, qkv, o, lse);
  return detail::plain_forward(stream, s, qkv, o, lse);
}

template <class T>
cudaError_t attention_bwd(cudaStream_t stream, const AttentionShape& shape, F32Products f32, const T* d_o,
                          const T* o, const float* lse, const T* qkv, float* delta, T* dqkv) {
  if (shape.d > detail::kMaxHeadDim) return cudaErrorInvalidValue;
  const AttentionShape s = detail::normalise_window(shape);
  if constexpr (detail::kWarpgroups<T>) {
    bool prefer = false;
    if (const cudaError_t e = detail::prefer_warpgroups(s, prefer); e != cudaSuccess) return e;
    if (prefer) return detail::wgmma_backward(stream, s, d_o, o, lse, qkv, delta, dqkv);
  }
  if (detail::use_tensor_cores<T>(s, f32))
    return detail::mma_backward(stream, s, d_o, o, lse, qkv, delta, dqkv);
  const cudaError_t e = detail::row_delta(stream, s, d_o, o, delta);
  if (e != cudaSuccess) return e;
  return detail::plain_backward(stream, s, d_o, lse, delta, qkv, dqkv);
}

#define TRAINHOST_ATTENTION(T)                                                                             \
  template cudaError_t attention(cudaStream_t, const AttentionShape&, F32Products, const T*, T*, float*);  \
  template cudaError_t attention_bwd(cudaStream_t, const AttentionShape&, F32Products, const T*, const T*, \
                                     const float*, const T*, float*, T*);
TRAINHOST_ATTENTION(float)
TRAINHOST_ATTENTION(Bf16)
#undef TRAINHOST_ATTENTION

}  // namespace trainhost::cuda
