// Device functions shared by several kernels: conversions, 16-byte loads and stores, sums and maxima over a
// warp and over a block. The order of additions depends only on the block size, so results are reproducible.
// Blocks must be one-dimensional and consist of whole warps. Used by the attention kernels; row kernels use
// packs.hpp in addition.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace trainhost::cuda {

inline constexpr unsigned kFullWarp = 0xffffffffu;
inline constexpr unsigned kWarp = 32;

// ---- conversion

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

// ---- 16-byte accesses

/// 16 bytes of T as kWidth floats: 4 of float, 8 of bf16. Addresses of load() and store() must be 16-byte
/// aligned.
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
  // A bf16 is the upper half of an f32. Little-endian: the lower half of a 32-bit word is the element at the
  // lower address, so it is shifted up; the upper element only needs its lower bits cleared.
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
// All 32 lanes must call these functions. Butterfly exchange: lane l combines with lane l ^ step, so after 5
// steps every lane has the result; all lanes have the same bits, because addition and maximum are
// commutative.

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
// All threads of the block must call these functions; every thread gets the result. Each warp writes its
// partial result to shared memory, and every warp then combines all of them. The first barrier protects
// `part` of an earlier call, which slower warps may still be reading; the second one makes the new parts
// visible.

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
  return warp_max(
      part[lane < warps ? lane : 0]);  // unused lanes repeat part 0, which does not change the maximum
}

// ---- shared memory

/// Start of the block's dynamic shared memory, 16-byte aligned, as required by vector accesses, ldmatrix and
/// cp.async.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char trainhost_dynamic_shared[];
  return reinterpret_cast<T*>(trainhost_dynamic_shared);
#else
  return static_cast<T*>(emu::dynamic_shared());
#endif
}

}  // namespace trainhost::cuda
