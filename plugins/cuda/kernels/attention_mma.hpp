// Pieces of the tensor-core attention kernels: swizzled tiles in shared memory, fragments of mma.sync, and
// the two kinds of warp-wide products. One code for bf16 (m16n8k16) and f32 as TF32 (m16n8k8): in both, a
// step of the inner dimension is 32 bytes of a row, two 16-byte chunks. Four warps a block, each with kM * 16
// rows of its own. Never waits for other warps.
#pragma once
#include <cstdint>

#include "plugins/cuda/kernels/attention_common.hpp"
#include "plugins/cuda/kernels/mma.hpp"

namespace trainhost::cuda::attention_detail {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = 32 * kMmaWarps;
inline constexpr float kLog2e = 1.4426950408889634f;

/// Where a lane stands in an accumulator of 16 rows x 8 columns: element i is at row(i), column(i).
struct Lane {
  int lane = static_cast<int>(threadIdx.x) % 32;
  __device__ __forceinline__ int row(int i) const { return lane / 4 + 8 * (i / 2); }
  __device__ __forceinline__ int col(int i) const { return lane % 4 * 2 + i % 2; }
};
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

// ---- tiles
// ---------------------------------------------------------------------------------------------------------
// Rows of D elements without padding. Chunk c (16 bytes) of a row lies at c ^ (row % 8), or, where a row is
// no multiple of 128 bytes, at c ^ (row / 2 % 4): eight rows at one chunk then cover all 32 banks, as
// ldmatrix reads them.

template <class T, int D>
struct Tile {
  static constexpr int kRowBytes = D * static_cast<int>(sizeof(T));
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
  static constexpr int kSteps = kRowBytes / 32;                       // of products over D
  static constexpr int kStepRows = 32 / static_cast<int>(sizeof(T));  // rows per step of products over rows
  static_assert(kChunks % 4 == 0);
  __device__ __forceinline__ static int offset(int row, int chunk) {
    const int turn = kChunks % 8 == 0 ? row & 7 : (row >> 1) & 3;
    return row * kRowBytes + ((chunk ^ turn) << 4);
  }
  /// offset(row0 + row, chunk + bytes / 16) from lane = offset(row, chunk), for row0 a multiple of 8, chunk 0
  /// or 1, bytes a multiple of 32: what depends on the lane is computed once, the rest are constants.
  __device__ __forceinline__ static int beyond(int lane, int row0, int bytes) {
    constexpr int kTurned = kChunks % 8 == 0 ? 127 : 63;
    return (lane ^ (bytes & kTurned)) + (bytes & ~kTurned) + row0 * kRowBytes;
  }
  static constexpr int bytes(int rows) { return rows * kRowBytes; }
};

/// Starts copies of rows [first, first + kRows) by the whole block; zeros for rows from `end` on.
template <class T, int D, int kRows>
__device__ __forceinline__ void copy_rows(unsigned char* tile, const T* from, unsigned ld, int first,
                                          int end) {
  using Layout = Tile<T, D>;
#pragma unroll
  for (int base = 0; base < kRows * Layout::kChunks; base += kMmaThreads) {
    const int i = base + static_cast<int>(threadIdx.x), row = i / Layout::kChunks,
              chunk = i % Layout::kChunks;
    if (kRows * Layout::kChunks % kMmaThreads != 0 && row >= kRows) break;
    const bool valid = first + row < end;
    const std::size_t source = row_at(valid ? first + row : end - 1, ld);
    cp_async_16(tile + Layout::offset(row, chunk), from + source + chunk * Layout::kChunkElements, valid);
  }
}
/// The same for keys and, kRows rows further on, their values, which lie `apart` elements behind them.
template <class T, int D, int kRows>
__device__ __forceinline__ void copy_keys_values(unsigned char* tile, const T* keys, std::size_t apart,
                                                 unsigned ld, int first, int end) {
  using Layout = Tile<T, D>;
#pragma unroll
  for (int base = 0; base < kRows * Layout::kChunks; base += kMmaThreads) {
    const int i = base + static_cast<int>(threadIdx.x), row = i / Layout::kChunks,
              chunk = i % Layout::kChunks;
    if (kRows * Layout::kChunks % kMmaThreads != 0 && row >= kRows) break;
    const bool valid = first + row < end;
    const T* source = keys + row_at(valid ? first + row : end - 1, ld) + chunk * Layout::kChunkElements;
    unsigned char* place = tile + Layout::offset(row, chunk);
    cp_async_16(place, source, valid);
    cp_async_16(place + kRows * Layout::kRowBytes, source + apart, valid);
  }
}

// ---- fragments
// -------------------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (sizeof(T) == 2)
    mma_m16n8k16_bf16(d, a, b);
  else
    mma_m16n8k8_tf32(d, a, b);
}
// TF32 keeps 10 of f32's 23 bits of mantissa; the tensor cores drop the others. Rounding to nearest first
// takes three instructions, and there are two operands for each product, so a number is made larger by 2^-11
// ln 2 instead: on average over all mantissas that is what dropping takes away. Errors stay below 0.7 units
// of the last bit; NaN stays NaN.
__device__ __forceinline__ std::uint32_t tf32_operand(float x) {
  return __float_as_uint(x * (1.f + 0.693147f / 2048));
}
template <class T>
__device__ __forceinline__ void round_words(std::uint32_t (&r)[4]) {
  if constexpr (sizeof(T) == 4)
#pragma unroll
    for (int i = 0; i < 4; ++i) r[i] = tf32_operand(__uint_as_float(r[i]));
}

/// A: rows row0..row0+15 of the tile, step `step` of D.
template <class T, int D>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const unsigned char* tile, int row0, int step) {
  const int lane = Lane().lane;
  ldmatrix_x4(a, tile + Tile<T, D>::beyond(Tile<T, D>::offset(lane % 16, lane / 16), row0, 32 * step));
  round_words<T>(a);
}
/// B of two blocks of 8 columns, which are rows row0..row0+15 of the tile; step `step` of D.
template <class T, int D>
__device__ __forceinline__ void load_b(std::uint32_t (&b)[2][2], const unsigned char* tile, int row0,
                                       int step) {
  const int lane = Lane().lane;
  std::uint32_t r[4];
  ldmatrix_x4(r, tile + Tile<T, D>::beyond(Tile<T, D>::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2), row0,
                                           32 * step));
  round_words<T>(r);
  b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}
/// B of two blocks of 8 columns (columns 16 * pair.. of the tile), whose inner dimension is the tile's rows
/// from row0 on. f32: inner index t is row 2t and t + 4 is row 2t + 1, as as_operand has them; the swizzle
/// keeps these reads apart too.
template <class T, int D>
__device__ __forceinline__ void load_b_transposed(std::uint32_t (&b)[2][2], const unsigned char* tile,
                                                  int row0, int pair) {
  using Layout = Tile<T, D>;
  const int lane = Lane().lane;
  if constexpr (sizeof(T) == 2) {
    std::uint32_t r[4];
    ldmatrix_x4_trans(r, tile + Layout::beyond(Layout::offset(lane % 16, lane / 16), row0, 32 * pair));
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = Layout::offset(lane % 4 * 2 + i % 2, lane / 16) + lane / 4 % 4 * 4;
      b[i / 2][i % 2] = tf32_operand(
          *reinterpret_cast<const float*>(tile + Layout::beyond(at, row0, 64 * pair + i / 2 * 32)));
    }
  }
}

/// Accumulators as the A operand of the next product, for step `step` over their columns. bf16: two blocks of
/// 8 columns have the layout of A as they are. f32: one block, with its columns in the order 0 2 4 6 1 3 5 7.
template <class T, int kN>
__device__ __forceinline__ void as_operand(std::uint32_t (&a)[4], const float (&x)[kN][4], int step) {
  if constexpr (sizeof(T) == 2) {
    const float(&u)[4] = x[2 * step];
    const float(&w)[4] = x[2 * step + 1];
    a[0] = Vec<Bf16>::pack(u[0], u[1]), a[1] = Vec<Bf16>::pack(u[2], u[3]);
    a[2] = Vec<Bf16>::pack(w[0], w[1]), a[3] = Vec<Bf16>::pack(w[2], w[3]);
  } else {
    const float(&u)[4] = x[step];
    a[0] = tf32_operand(u[0]), a[1] = tf32_operand(u[2]), a[2] = tf32_operand(u[1]),
    a[3] = tf32_operand(u[3]);
  }
}

// ---- products
// ----------------------------------------------------------------------------------------------------------

/// A warp's kM * 16 rows of a tile as operands: held in registers where they are used often and small enough,
/// else read again for each product.
template <class T, int D, int kM, bool kHeld>
struct WarpRows {
  const unsigned char* tile;
  int row0;
  std::uint32_t held[kHeld ? kM : 1][kHeld ? Tile<T, D>::kSteps : 1][4];
  __device__ __forceinline__ void load() {
    if constexpr (kHeld)
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int step = 0; step < Tile<T, D>::kSteps; ++step)
          load_a<T, D>(held[m][step], tile, row0 + 16 * m, step);
  }
  __device__ __forceinline__ void get(std::uint32_t (&a)[4], int m, int step) const {
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = held[m][step][i];
    } else {
      load_a<T, D>(a, tile, row0 + 16 * m, step);
    }
  }
};

/// out = the warp's rows times rows 0..8*kN-1 of `other`, over D.
template <class T, int D, int kM, bool kHeld, int kN>
__device__ __forceinline__ void rows_times_rows(float (&out)[kM][kN][4],
                                                const WarpRows<T, D, kM, kHeld>& rows,
                                                const unsigned char* other) {
  static_assert(kN % 2 == 0);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[m][n][i] = 0;
#pragma unroll
  for (int step = 0; step < Tile<T, D>::kSteps; ++step) {
    std::uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) rows.get(a[m], m, step);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      std::uint32_t b[2][2];
      load_b<T, D>(b, other, 8 * n, step);
#pragma unroll
      for (int m = 0; m < kM; ++m) mma<T>(out[m][n], a[m], b[0]), mma<T>(out[m][n + 1], a[m], b[1]);
    }
  }
}

/// sum += x (in registers, 16*kM x 8*kN) times rows 0..8*kN-1 of `tile`.
template <class T, int D, int kM, int kN>
__device__ __forceinline__ void add_products(float (&sum)[kM][D / 8][4], const float (&x)[kM][kN][4],
                                             const unsigned char* tile) {
  constexpr int kStepRows = Tile<T, D>::kStepRows;
#pragma unroll
  for (int step = 0; step < 8 * kN / kStepRows; ++step) {
    std::uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) as_operand<T>(a[m], x[m], step);
#pragma unroll
    for (int pair = 0; pair < D / 16; ++pair) {
      std::uint32_t b[2][2];
      load_b_transposed<T, D>(b, tile, step * kStepRows, pair);
#pragma unroll
      for (int m = 0; m < kM; ++m)
        mma<T>(sum[m][2 * pair], a[m], b[0]), mma<T>(sum[m][2 * pair + 1], a[m], b[1]);
    }
  }
}

// ---- results
// -------------------------------------------------------------------------------------------------------------

/// Writes a warp's rows, x * factor, as rows row0.. of `to`, 16 bytes at a time, by way of the warp's own
/// rows of a tile that no other warp reads. `first` is the global row of the tile's row 0; rows from `end` on
/// are left out.
template <class T, int D, int kM>
__device__ __forceinline__ void store_rows(unsigned char* tile, int row0, const float (&x)[kM][D / 8][4],
                                           const float (&factor)[kM][2], T* to, unsigned ld, int first,
                                           int end) {
  using Layout = Tile<T, D>;
  const Lane at;
  __syncwarp();  // ldmatrix reads on behalf of other lanes
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float u = x[m][n][2 * half] * factor[m][half], w = x[m][n][2 * half + 1] * factor[m][half];
        const int row = row0 + 16 * m + at.row(2 * half), column = 8 * n + at.col(0);
        unsigned char* place = tile + Layout::offset(row, column / Layout::kChunkElements) +
                               column % Layout::kChunkElements * static_cast<int>(sizeof(T));
        if constexpr (sizeof(T) == 2)
          *reinterpret_cast<std::uint32_t*>(place) = Vec<Bf16>::pack(u, w);
        else
          *reinterpret_cast<float2*>(place) = make_float2(u, w);
      }
  __syncwarp();
#pragma unroll 4
  for (int i = at.lane; i < 16 * kM * Layout::kChunks; i += 32) {
    const int row = row0 + i / Layout::kChunks, chunk = i % Layout::kChunks;
    if (first + row >= end) break;
    T* place = to + row_at(first + row, ld) + chunk * Layout::kChunkElements;
    *reinterpret_cast<uint4*>(place) = *reinterpret_cast<const uint4*>(tile + Layout::offset(row, chunk));
  }
}

}  // namespace trainhost::cuda::attention_detail
