// Small device functions that several kernels share: conversions, loads of 16 bytes, sums and maxima over a
// warp and over a block. All of them add in an order that depends on the block's size alone. Blocks are
// one-dimensional, of whole warps.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace trainhost::cuda {

inline constexpr unsigned kFullWarp = 0xffffffffu;
inline constexpr unsigned kWarp = 32;

// ---- conversion
// ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

/// f32 to the storage type, rounded to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// ---- 16 bytes at a time
// ----------------------------------------------------------------------------------------------

/// kWidth elements of T as floats: 4 of float, 8 of bf16. Addresses of load and store are 16-byte aligned.
template <class T>
struct Vec;

template <>
struct Vec<float> {
  static constexpr unsigned kWidth = 4;
  float v[kWidth];
  __device__ __forceinline__ static Vec load(const float* from) {
    const float4 q = *reinterpret_cast<const float4*>(from);
    return {{q.x, q.y, q.z, q.w}};
  }
  __device__ __forceinline__ void store(float* to) const {
    *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
  }
};

template <>
struct Vec<__nv_bfloat16> {
  static constexpr unsigned kWidth = 8;
  float v[kWidth];
  // The lower half of a word is the element at the lower address; a bf16 is the upper half of its f32.
  __device__ __forceinline__ static Vec load(const __nv_bfloat16* from) {
    const uint4 q = *reinterpret_cast<const uint4*>(from);
    const unsigned word[4] = {q.x, q.y, q.z, q.w};
    Vec r;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      r.v[2 * i] = __uint_as_float(word[i] << 16);
      r.v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
    return r;
  }
  __device__ __forceinline__ void store(__nv_bfloat16* to) const {
    union {
      uint4 q;
      unsigned word[4];
    } u;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) u.word[i] = pack(v[2 * i], v[2 * i + 1]);
    *reinterpret_cast<uint4*>(to) = u.q;
  }
  /// Two elements as one word, `low` at the lower address.
  __device__ __forceinline__ static unsigned pack(float low, float high) {
    union {
      __nv_bfloat162 pair;
      unsigned word;
    } u = {__floats2bfloat162_rn(low, high)};
    return u.word;
  }
};

// ---- over a warp
// -------------------------------------------------------------------------------------------------------
// Every lane of the warp must come, and every lane gets the same bits.

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

template <class T>
__device__ __forceinline__ T warp_max(T x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) {
    const T other = __shfl_xor_sync(kFullWarp, x, step);
    x = other > x ? other : x;
  }
  return x;
}

// ---- over a block
// ------------------------------------------------------------------------------------------------------
// Every thread must come, and every thread gets the result. A warp writes its part, and each warp then adds
// all of them. The barrier in front lets one call follow another, whose parts some warp may still be reading.

template <class T>
__device__ __forceinline__ T block_sum(T x) {
  __shared__ T part[kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) part[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? part[lane] : T(0));
}

template <class T>
__device__ __forceinline__ T block_max(T x) {
  __shared__ T part[kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  x = warp_max(x);
  __syncthreads();
  if (lane == 0) part[warp] = x;
  __syncthreads();
  return warp_max(part[lane < warps ? lane : 0]);
}

}  // namespace trainhost::cuda
