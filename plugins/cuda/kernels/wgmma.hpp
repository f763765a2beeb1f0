// Products of a warpgroup (128 consecutive threads) on the tensor cores of compute capability 9.0: wgmma as
// functions, PTX on the device and calls of the emulation in tests, as mma.hpp does for mma.sync. Sources
// that include this file are compiled for sm_90a only (plugins/cuda/CMakeLists.txt).
//
// A product is asynchronous: it reads registers and shared memory, and writes its sums, at any time between
// its start and the wait for its group. The order is
//   wgmma_fence(); wgmma_...(); wgmma_commit(); ... wgmma_wait<0>(sums);
// and nothing that the product reads or writes is touched in between. Shared memory that was written by
// ordinary stores or by cp.async needs async_proxy_fence() in each writing thread, before the barrier after
// which products read it. All functions except async_proxy_fence() are called by whole warpgroups.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "plugins/cuda/kernels/mma.hpp"

#ifndef __CUDACC__
#include <cuda_emulation/wgmma.h>
#endif

namespace trainhost::cuda {

inline constexpr int kWarpgroup = 128;  // threads

/// Sums of 64 rows x 64 columns, of which warp w of the warpgroup has rows 16w..16w+15. x[n] is block n of 8
/// columns, in the layout of d of mma.hpp.
using WgmmaSums = float[8][4];

// ---- operands in shared memory
// A panel has rows of 64 bf16 numbers (128 bytes) and starts at a multiple of 1024 bytes. Chunk c (16 bytes)
// of row r is stored at position c ^ (r % 8), the 128-byte swizzle of the PTX manual. Kernels pass the address
// of an operand's first number, whose row must be a multiple of 8.

/// Address of an operand in shared memory, in units of 16 bytes: the part of wgmma's descriptor that differs
/// between the operands of this folder.
struct PanelAddress {
  std::uint32_t units;
  /// The operand that starts this many bytes further on.
  __device__ __forceinline__ PanelAddress operator+(int bytes) const {
    return {units + static_cast<std::uint32_t>(bytes / 16)};
  }
};

#ifdef __CUDACC__
__device__ __forceinline__ PanelAddress panel_address(const void* at) { return {shared_address(at) >> 4}; }

// Bits 16 to 29: stride between panels, which an operand of 64 numbers does not have; 32 to 45: stride
// between groups of eight rows; 62 and 63: 128-byte swizzle.
__device__ __forceinline__ std::uint64_t descriptor(PanelAddress at) {
  constexpr std::uint64_t kNoStride = 1, kEightRows = 1024 / 16, kSwizzle = 1;
  return (kSwizzle << 62 | kEightRows << 32 | kNoStride << 16) + at.units;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void async_proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Keeps the compiler from moving accesses to the sums across the asm statements before and after this one.
__device__ __forceinline__ void pin(WgmmaSums& x) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(x[n][i])::"memory");
}

/// Waits until at most kLeft groups of this warpgroup are pending. `done`: sums that are complete then.
template <int kLeft, class... Sums>
__device__ __forceinline__ void wgmma_wait(Sums&... done) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
  (pin(done), ...);
}

#define TRAINHOST_WGMMA_ROW(x, n) "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])
#define TRAINHOST_WGMMA_SUMS(x)                                                        \
  TRAINHOST_WGMMA_ROW(x, 0), TRAINHOST_WGMMA_ROW(x, 1), TRAINHOST_WGMMA_ROW(x, 2),     \
      TRAINHOST_WGMMA_ROW(x, 3), TRAINHOST_WGMMA_ROW(x, 4), TRAINHOST_WGMMA_ROW(x, 5), \
      TRAINHOST_WGMMA_ROW(x, 6), TRAINHOST_WGMMA_ROW(x, 7)
#define TRAINHOST_WGMMA_32                                                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
  "%27,%28,%29,%30,%31}"

/// d[64, 64] = a[64, 16] b[16, 64], plus d if `add`. a: fragments of m16n8k16 (mma.hpp), each warp its 16
/// rows. b: kRowsAreSum: row k of the panel is row k of b (16 rows from the descriptor on); else row n of the
/// panel is column n of b (64 rows; 16 numbers from the descriptor on).
template <bool kRowsAreSum>
__device__ __forceinline__ void wgmma_m64n64k16(WgmmaSums& d, const std::uint32_t (&a)[4], PanelAddress b,
                                                bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " TRAINHOST_WGMMA_32
      ", {%32,%33,%34,%35}, %36, p, 1, 1, %38;}"
      : TRAINHOST_WGMMA_SUMS(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor(b)), "r"(static_cast<int>(add)),
        "n"(kRowsAreSum ? 1 : 0));
}
/// The same with a in shared memory: row m of the panel is row m of a.
template <bool kRowsAreSum>
__device__ __forceinline__ void wgmma_m64n64k16(WgmmaSums& d, PanelAddress a, PanelAddress b, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " TRAINHOST_WGMMA_32
      ", %32, %33, p, 1, 1, 0, %35;}"
      : TRAINHOST_WGMMA_SUMS(d)
      : "l"(descriptor(a)), "l"(descriptor(b)), "r"(static_cast<int>(add)), "n"(kRowsAreSum ? 1 : 0));
}
#undef TRAINHOST_WGMMA_ROW
#undef TRAINHOST_WGMMA_SUMS
#undef TRAINHOST_WGMMA_32

#else

inline PanelAddress panel_address(const void* at) { return {emu::shared_units(at)}; }
inline void wgmma_fence() { emu::wgmma_fence(); }
inline void wgmma_commit() { emu::wgmma_commit(); }
inline void async_proxy_fence() {}
template <int kLeft, class... Sums>
void wgmma_wait(Sums&...) {
  emu::wgmma_wait(kLeft);
}
template <bool kRowsAreSum>
void wgmma_m64n64k16(WgmmaSums& d, const std::uint32_t (&a)[4], PanelAddress b, bool add) {
  emu::wgmma({d, a, 0, b.units, add, kRowsAreSum});
}
template <bool kRowsAreSum>
void wgmma_m64n64k16(WgmmaSums& d, PanelAddress a, PanelAddress b, bool add) {
  emu::wgmma({d, nullptr, a.units, b.units, add, kRowsAreSum});
}

#endif

}  // namespace trainhost::cuda
