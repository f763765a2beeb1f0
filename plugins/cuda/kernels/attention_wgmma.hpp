// Building blocks of the attention kernels for compute capability 9.0: tiles in shared memory as wgmma reads
// them, and products of tiles. bf16 only, heads of 64 and 128 elements. A block has one or more warpgroups,
// each of which owns 64 rows of the block's tile. Instructions: wgmma.hpp. Masks: attention_common.hpp.
// Layout of sums, and their conversion to operands: attention_mma.hpp.
#pragma once
#include <type_traits>

#include "plugins/cuda/kernels/attention_mma.hpp"
#include "plugins/cuda/kernels/wgmma.hpp"

namespace trainhost::cuda::attention_detail {

inline constexpr int kGroupRows = 64;  // of a warpgroup: the rows of one wgmma

/// The block's dynamic shared memory, at a multiple of 1024 bytes, which the swizzle of panels needs.
__device__ __forceinline__ unsigned char* panels_in_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(1024) unsigned char trainhost_panels[];
  return trainhost_panels;
#else
  return static_cast<unsigned char*>(emu::dynamic_shared());
#endif
}

/// A tile of kRows rows of D bf16 numbers: D / 64 panels (wgmma.hpp), one behind the other.
template <int D, int kRows>
struct Panels {
  static_assert(D % 64 == 0 && kRows % 64 == 0);
  static constexpr int kCount = D / 64, kChunks = D / 8, kPanelBytes = kRows * 128;
  static constexpr int kBytes = kCount * kPanelBytes;
  /// Byte offset of a chunk of 16 bytes.
  __device__ __forceinline__ static int offset(int row, int chunk) {
    return chunk / 8 * kPanelBytes + row * 128 + ((chunk % 8 ^ (row & 7)) << 4);
  }
  /// Byte offset of numbers 16 * step.. of a row, which starts at `row * 128`: a step of a sum over D.
  __device__ __forceinline__ static constexpr int along_row(int step) {
    return step / 4 * kPanelBytes + step % 4 * 32;
  }
  /// Byte offset of a panel of rows 16 * step.. : a step of a sum over rows.
  __device__ __forceinline__ static constexpr int along_rows(int step, int panel) {
    return panel * kPanelBytes + step * 16 * 128;
  }
};

/// A thread's part of asynchronous copies of tiles of kRows rows by kThreads threads: one chunk of every
/// kThreads / (D / 8) rows, always at the same place in a group of eight rows.
template <int D, int kRows, int kThreads>
struct PanelCopy {
  using Layout = Panels<D, kRows>;
  static constexpr int kStep = kThreads / Layout::kChunks;  // rows
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  int row = static_cast<int>(threadIdx.x) / Layout::kChunks,
      chunk = static_cast<int>(threadIdx.x) % Layout::kChunks;
  int to = Layout::offset(row, chunk);

  /// Starts the copies of rows [first, first + kRows) of a matrix with rows `ld` apart into a tile. Rows from
  /// `end` on become zeros. The caller commits and waits.
  __device__ __forceinline__ void start(unsigned char* tile, const Bf16* from, unsigned ld, int first,
                                        int end) const {
    from += chunk * 8;
    if (first + kRows <= end) {
      from += row_at(first + row, ld);
      const std::size_t step = static_cast<std::size_t>(kStep) * ld;
#pragma unroll
      for (int i = 0; i < kRows / kStep; ++i) cp_async_16(tile + to + i * kStep * 128, from + i * step);
      return;
    }
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const int at = first + row + i * kStep;
      // Invalid rows read nothing, but their address must still be valid.
      cp_async_16(tile + to + i * kStep * 128, from + row_at(at < end ? at : end - 1, ld), at < end);
    }
  }
};

/// Waits for this thread's copies and makes those of all threads visible to the products of all.
__device__ __forceinline__ void wait_for_copies() {
  cp_async_wait<0>();
  async_proxy_fence();
  __syncthreads();
}

/// Calls step(stage) for at, at + tile, ... below stop. The stage alternates between 0 and 1 and is a
/// compile-time constant, so that the addresses of operands are.
template <class Step>
__device__ __forceinline__ void in_two_stages(int& at, int stop, int tile, const Step& step) {
  while (at < stop) {
    step(std::integral_constant<int, 0>());
    at += tile;
    if (at >= stop) break;
    step(std::integral_constant<int, 1>());
    at += tile;
  }
}

/// Starts out[64, 64] = 64 rows of one tile times the transpose of 64 rows of another one, of kRows and
/// kOtherRows rows.
template <int D, int kRows, int kOtherRows>
__device__ __forceinline__ void rows_times_rows(WgmmaSums& out, PanelAddress rows, PanelAddress other) {
#pragma unroll
  for (int step = 0; step < D / 16; ++step)
    wgmma_m64n64k16<false>(out, rows + Panels<D, kRows>::along_row(step),
                           other + Panels<D, kOtherRows>::along_row(step), step != 0);
}

/// 64 columns of sums as the left operand of the next product.
struct GroupOperand {
  std::uint32_t a[4][4];  // by step of 16 columns; read until the product has been waited for
  __device__ __forceinline__ void convert(const WgmmaSums& x) {
#pragma unroll
    for (int step = 0; step < 4; ++step) as_operand<Bf16>(a[step], x, step);
  }
  /// Starts sum[64, D] += this operand times 64 rows of a tile of kRows rows.
  template <int D, int kRows>
  __device__ __forceinline__ void times_tile(WgmmaSums (&sum)[D / 64], PanelAddress rows) const {
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel)
        wgmma_m64n64k16<true>(sum[panel], a[step], rows + Panels<D, kRows>::along_rows(step, panel), true);
  }
};

template <int kLeft, int kCount>
__device__ __forceinline__ void wait_for(WgmmaSums (&sums)[kCount]) {
  if constexpr (kCount == 1)
    wgmma_wait<kLeft>(sums[0]);
  else
    wgmma_wait<kLeft>(sums[0], sums[1]);
  static_assert(kCount <= 2);
}

/// Stores x * factor as rows of `to`, through the warp's own rows of a tile that no product reads any more.
/// row0: first row of the warp in the tile; first: global row of the tile's row 0; rows from `end` on are not
/// stored. factor: for the lane's two rows.
template <int D, int kRows>
__device__ __forceinline__ void store_panels(unsigned char* tile, int row0, const WgmmaSums (&x)[D / 64],
                                             const float (&factor)[2], Bf16* to, unsigned ld, int first,
                                             int end) {
  using Layout = Panels<D, kRows>;
  const Lane at;
  __syncwarp();  // other lanes may still read these rows with ldmatrix
#pragma unroll
  for (int panel = 0; panel < D / 64; ++panel)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<std::uint32_t*>(tile + Layout::offset(row0 + at.row(2 * half), 8 * panel + n) +
                                          at.col(0) * 2) =
            Vec<Bf16>::pack(x[panel][n][2 * half] * factor[half], x[panel][n][2 * half + 1] * factor[half]);
  __syncwarp();  // the rows are complete
#pragma unroll 4
  for (int i = at.lane; i < 16 * Layout::kChunks; i += 32) {
    const int row = row0 + i / Layout::kChunks, chunk = i % Layout::kChunks;
    if (first + row >= end) break;
    *reinterpret_cast<uint4*>(to + row_at(first + row, ld) + chunk * 8) =
        *reinterpret_cast<const uint4*>(tile + Layout::offset(row, chunk));
  }
}

/// Index of the warpgroup in the block, the same for all lanes of a warp also for the compiler.
__device__ __forceinline__ int warpgroup_index() {
  return __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
}
/// The lane's rows of the scores of a warpgroup whose first row is `first`.
__device__ __forceinline__ int group_row(int first, int i) {
  return first + warp_index() % 4 * 16 + Lane().row(i);
}

}  // namespace trainhost::cuda::attention_detail
