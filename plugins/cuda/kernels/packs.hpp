// Shared by the kernels over rows: packs of elements that are loaded and stored in one access, sums over
// lanes and blocks in a fixed order, and the division of [rows, n] into blocks. Unpacked values are f32 for
// both storage types. Contains no kernel. Functions over warps: device_functions.hpp.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "plugins/cuda/kernels/device_functions.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"
#include "plugins/cuda/kernels/launch.hpp"

namespace trainhost::cuda {

/// Elements of a 16-byte access.
template <class T>
inline constexpr int kWide = static_cast<int>(16 / sizeof(T));

template <int V>
struct Floats {
  float v[V];
  __device__ __forceinline__ float& operator[](int i) { return v[i]; }
  __device__ __forceinline__ const float& operator[](int i) const { return v[i]; }
};

// ---- packs: V neighbouring elements in their storage type
// A pack is what a thread keeps of a row between
// two passes: half the registers of its values when the type is bf16.
template <class T, int V>
struct Pack;
template <>
struct Pack<float, 1> {
  float raw;
};
template <>
struct Pack<float, 4> {
  float4 raw;
};
template <>
struct Pack<Bf16, 1> {
  Bf16 raw;
};
template <>
struct Pack<Bf16, 4> {
  uint2 raw;
};
template <>
struct Pack<Bf16, 8> {
  uint4 raw;
};

template <int V, class T>
__device__ __forceinline__ Pack<T, V> load(const T* p) {
  return {*reinterpret_cast<const decltype(Pack<T, V>::raw)*>(p)};
}
/// Stores a pack to device memory in one access. With a plain assignment the compiler may split it into
/// stores of single words.
template <class T, int V>
__device__ __forceinline__ void store(T* p, const Pack<T, V>& pack) {
  __stcg(reinterpret_cast<decltype(Pack<T, V>::raw)*>(p), pack.raw);
}
template <class T, int V>
__device__ __forceinline__ Pack<T, V> zeros() {
  Pack<T, V> p{};
  return p;
}

// A bf16 is the upper half of an f32. Of two neighbours in a word, the lower one is shifted up, the upper one
// masked.
__device__ __forceinline__ float low_half(std::uint32_t two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high_half(std::uint32_t two) { return __uint_as_float(two & 0xffff0000u); }
__device__ __forceinline__ std::uint32_t two_bf16(float low, float high) {
  return Vec<Bf16>::pack(low, high);
}

__device__ __forceinline__ Floats<1> unpack(const Pack<float, 1>& p) { return {{p.raw}}; }
__device__ __forceinline__ Floats<4> unpack(const Pack<float, 4>& p) {
  return {{p.raw.x, p.raw.y, p.raw.z, p.raw.w}};
}
__device__ __forceinline__ Floats<1> unpack(const Pack<Bf16, 1>& p) { return {{__bfloat162float(p.raw)}}; }
__device__ __forceinline__ Floats<4> unpack(const Pack<Bf16, 4>& p) {
  return {{low_half(p.raw.x), high_half(p.raw.x), low_half(p.raw.y), high_half(p.raw.y)}};
}
__device__ __forceinline__ Floats<8> unpack(const Pack<Bf16, 8>& p) {
  return {{low_half(p.raw.x), high_half(p.raw.x), low_half(p.raw.y), high_half(p.raw.y), low_half(p.raw.z),
           high_half(p.raw.z), low_half(p.raw.w), high_half(p.raw.w)}};
}

template <class T>
struct Packer;  // Packer<T>::pack(Floats<V>) rounds to nearest even
template <>
struct Packer<float> {
  static __device__ __forceinline__ Pack<float, 1> pack(const Floats<1>& f) { return {f[0]}; }
  static __device__ __forceinline__ Pack<float, 4> pack(const Floats<4>& f) {
    return {make_float4(f[0], f[1], f[2], f[3])};
  }
};
template <>
struct Packer<Bf16> {
  static __device__ __forceinline__ Pack<Bf16, 1> pack(const Floats<1>& f) {
    return {__float2bfloat16_rn(f[0])};
  }
  static __device__ __forceinline__ Pack<Bf16, 4> pack(const Floats<4>& f) {
    return {make_uint2(two_bf16(f[0], f[1]), two_bf16(f[2], f[3]))};
  }
  static __device__ __forceinline__ Pack<Bf16, 8> pack(const Floats<8>& f) {
    return {
        make_uint4(two_bf16(f[0], f[1]), two_bf16(f[2], f[3]), two_bf16(f[4], f[5]), two_bf16(f[6], f[7]))};
  }
};

template <int V, class T>
__device__ __forceinline__ Floats<V> load_floats(const T* p) {
  return unpack(load<V>(p));
}
template <class T, int V>
__device__ __forceinline__ void store_floats(T* p, const Floats<V>& f) {
  store(p, Packer<T>::pack(f));
}
/// Loads V floats of an array that is f32 for both storage types.
template <int V>
__device__ __forceinline__ Floats<V> load_f32(const float* p) {
  if constexpr (V == 8) {
    const Floats<4> a = load_floats<4>(p), b = load_floats<4>(p + 4);
    return {{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}};
  } else {
    return load_floats<V>(p);
  }
}

/// True if rows of n elements starting at p allow 16-byte accesses: n and p are multiples of 16 bytes.
template <class T>
bool wide_rows(std::uint64_t n, const T* p) {
  return n % kWide<T> == 0 && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}
template <class T, class... More>
bool wide_rows(std::uint64_t n, const T* p, const More*... more) {
  return wide_rows(n, p) && (wide_rows(n, more) && ...);
}

// ---- sums in a fixed order
/// Sum over `lanes` neighbouring lanes, a power of two. All of them get the same bits, because addition is
/// commutative. All 32 lanes of the warp must call it.
template <class F>
__device__ __forceinline__ F lanes_sum(F v, std::uint32_t lanes) {
  for (std::uint32_t o = lanes / 2; o > 0; o /= 2) v += __shfl_xor_sync(kFullWarp, v, o);
  return v;
}
/// Sum over a block with only one barrier, for use in loops. shared: one element per warp. A warp may still
/// read `shared` when another one leaves, so the next call must use a different array; alternating between
/// two is sufficient, because the barrier of the call in between separates the uses of one array.
template <class F>
__device__ __forceinline__ F sum_of_block(F v, F* shared) {
  const std::uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
  v = warp_sum(v);
  if (lane == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : F(0));
}

// ---- division into blocks
constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
constexpr std::uint32_t whole_warps(std::uint64_t threads) {
  return static_cast<std::uint32_t>(divide_up(threads, 32) * 32);
}

/// a / b. A 64-bit division takes about a hundred instructions, so 32 bits are used if a fits.
__device__ __forceinline__ std::uint64_t divide(std::uint64_t a, std::uint32_t b) {
  return (a >> 32) == 0 ? static_cast<std::uint32_t>(a) / b : a / b;
}

/// Launch shape for kernels without sums over rows of `packs` packs. A thread processes k packs of one row,
/// `lanes` packs apart, so that the accesses of a warp are contiguous. Blocks have at most 256 threads:
/// several short rows share a block (grid x), long rows are divided into parts (grid y).
struct RowCut {
  std::uint32_t lanes, rows_of_block, parts;
  std::uint64_t blocks;
  RowCut(std::uint64_t rows, std::uint32_t packs, std::uint32_t k) {
    parts = static_cast<std::uint32_t>(divide_up(packs, 256 * k));
    lanes = static_cast<std::uint32_t>(divide_up(packs, parts * std::uint64_t{k}));
    if (lanes > 128) lanes = whole_warps(lanes);
    rows_of_block = 256 / lanes;
    blocks = divide_up(rows, rows_of_block);
  }
  dim3 grid() const { return dim3(static_cast<unsigned>(blocks), parts); }
  dim3 block() const { return dim3(lanes * rows_of_block); }
};
/// The packs of a thread under RowCut.
struct ThreadPacks {
  std::uint64_t row;
  std::uint32_t first;  // first pack; the others are first + lanes, first + 2 * lanes, ...
};
template <int K>
__device__ __forceinline__ ThreadPacks packs_of_thread(std::uint32_t lanes) {
  const std::uint32_t in_block = threadIdx.x / lanes;
  return {std::uint64_t{blockIdx.x} * (blockDim.x / lanes) + in_block,
          blockIdx.y * lanes * K + threadIdx.x - in_block * lanes};
}

}  // namespace trainhost::cuda
