// Building blocks of the tensor-core attention kernels: swizzled tiles in shared memory, fragments of
// mma.sync, and the two kinds of warp-wide products. The same code serves bf16 (m16n8k16) and f32 as TF32
// (m16n8k8): in both, one step of the inner dimension is 32 bytes of a row, that is, two 16-byte chunks. A
// block has 4 or 8 warps; each owns kM * 16 rows of the block's tile. No function here synchronises with
// other warps. Fragment layouts: mma.hpp.
#pragma once
#include <cstdint>

#include "plugins/cuda/kernels/attention_common.hpp"
#include "plugins/cuda/kernels/mma.hpp"

namespace trainhost::cuda::attention_detail {

inline constexpr int kFewWarps = 4, kManyWarps = 8;  // of a block
inline constexpr float kLog2e = 1.4426950408889634f;

/// Position of a lane in an accumulator of 16 rows x 8 columns: its element i (0..3) is at row(i), col(i).
struct Lane {
  int lane = static_cast<int>(threadIdx.x) % 32;
  __device__ __forceinline__ int row(int i) const { return lane / 4 + 8 * (i / 2); }
  __device__ __forceinline__ int col(int i) const { return lane % 4 * 2 + i % 2; }
};
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

// ---- tiles
// A tile in shared memory has rows of D elements, padded to a multiple of 64 bytes. To avoid bank conflicts,
// chunk c (16 bytes) of a row is stored at position c ^ (row % 8), or, if a row is not a multiple of 128
// bytes, at c ^ (row / 2 % 4). ldmatrix reads 8 rows at one chunk; with this swizzle their 8 chunks cover all
// 32 banks. The padding (bf16 heads of 48 and 80 elements) is neither written nor read.

template <class T, int D>
struct Tile {
  static constexpr int kDataBytes = D * static_cast<int>(sizeof(T));
  static constexpr int kRowBytes = (kDataBytes + 63) / 64 * 64;
  static constexpr int kChunks = kDataBytes / 16;  // with data; the others of a row are padding
  static constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
  static constexpr int kSteps = kDataBytes / 32;  // mma steps of a product with inner dimension D
  // Rows per mma step of a product whose inner dimension is the rows of the tile.
  static constexpr int kStepRows = 32 / static_cast<int>(sizeof(T));
  static_assert(kDataBytes % 32 == 0);
  /// Byte offset of a chunk in the tile.
  __device__ __forceinline__ static int offset(int row, int chunk) {
    // Groups of 8 or of 4 chunks are permuted.
    const int swizzle = kRowBytes % 128 == 0 ? row & 7 : (row >> 1) & 3;
    return row * kRowBytes + ((chunk ^ swizzle) << 4);
  }
  /// offset(row0 + row, chunk + bytes / 16), given lane = offset(row, chunk). Requires row0 % 8 == 0, chunk 0
  /// or 1 and bytes % 32 == 0. So `lane` is computed once per thread, and row0 and bytes are compile-time
  /// constants: adding 8 rows does not change the swizzle, and adding 32 bytes inside a swizzled group is an
  /// XOR.
  __device__ __forceinline__ static int beyond(int lane, int row0, int bytes) {
    constexpr int kSwizzled = kRowBytes % 128 == 0 ? 127 : 63;  // bytes of a swizzled group, minus 1
    return (lane ^ (bytes & kSwizzled)) + (bytes & ~kSwizzled) + row0 * kRowBytes;
  }
  static constexpr int bytes(int rows) { return rows * kRowBytes; }
};

/// Starts asynchronous copies of rows [first, first + kRows) into a tile, by all threads of a block of kWarps
/// warps. Rows from `end` on become zeros. The caller commits and waits.
template <class T, int D, int kRows, int kWarps>
__device__ __forceinline__ void copy_rows(unsigned char* tile, const T* from, unsigned ld, int first,
                                          int end) {
  using Layout = Tile<T, D>;
  constexpr int kThreads = 32 * kWarps;
#pragma unroll
  for (int base = 0; base < kRows * Layout::kChunks; base += kThreads) {
    const int i = base + static_cast<int>(threadIdx.x), row = i / Layout::kChunks,
              chunk = i % Layout::kChunks;
    if (kRows * Layout::kChunks % kThreads != 0 && row >= kRows) break;
    const bool valid = first + row < end;
    // Invalid rows read nothing, but their address must still be valid.
    const std::size_t source = row_at(valid ? first + row : end - 1, ld);
    cp_async_16(tile + Layout::offset(row, chunk), from + source + chunk * Layout::kChunkElements, valid);
  }
}
/// The same for a tile of keys, followed in shared memory by the tile of their values. In global memory
/// values are `apart` elements behind their keys.
template <class T, int D, int kRows, int kWarps>
__device__ __forceinline__ void copy_keys_values(unsigned char* tile, const T* keys, std::size_t apart,
                                                 unsigned ld, int first, int end) {
  using Layout = Tile<T, D>;
  constexpr int kThreads = 32 * kWarps;
#pragma unroll
  for (int base = 0; base < kRows * Layout::kChunks; base += kThreads) {
    const int i = base + static_cast<int>(threadIdx.x), row = i / Layout::kChunks,
              chunk = i % Layout::kChunks;
    if (kRows * Layout::kChunks % kThreads != 0 && row >= kRows) break;
    const bool valid = first + row < end;
    const T* source = keys + row_at(valid ? first + row : end - 1, ld) + chunk * Layout::kChunkElements;
    unsigned char* to = tile + Layout::offset(row, chunk);
    cp_async_16(to, source, valid);
    cp_async_16(to + kRows * Layout::kRowBytes, source + apart, valid);
  }
}

// ---- fragments

template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (sizeof(T) == 2)
    mma_m16n8k16_bf16(d, a, b);
  else
    mma_m16n8k8_tf32(d, a, b);
}
// Converts an f32 operand to TF32. The tensor cores truncate the mantissa from 23 to 10 bits, which biases
// every operand towards zero. Rounding to nearest would take three instructions per operand. Instead the
// number is multiplied by 1 + 2^-11 ln 2, the average loss of a truncation over all mantissas, in one
// instruction. The error is below 0.7 units of the last TF32 bit, and unbiased on average. NaN stays NaN.
__device__ __forceinline__ std::uint32_t tf32_operand(float x) {
  return __float_as_uint(x * (1.f + 0.693147f / 2048));
}
/// Applies tf32_operand() to a fragment of f32; does nothing for bf16.
template <class T>
__device__ __forceinline__ void convert_operands(std::uint32_t (&r)[4]) {
  if constexpr (sizeof(T) == 4)
#pragma unroll
    for (int i = 0; i < 4; ++i) r[i] = tf32_operand(__uint_as_float(r[i]));
}

/// Loads the A fragment of rows row0..row0+15 of the tile, mma step `step` of D. One ldmatrix: lanes 0-15
/// address the rows at the first chunk, lanes 16-31 at the second.
template <class T, int D>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const unsigned char* tile, int row0, int step) {
  const int lane = Lane().lane;
  ldmatrix_x4(a, tile + Tile<T, D>::beyond(Tile<T, D>::offset(lane % 16, lane / 16), row0, 32 * step));
  convert_operands<T>(a);
}
/// Loads the B fragments of two blocks of 8 columns, which are rows row0..row0+15 of the tile, mma step
/// `step` of D: the operand is the transposed tile.
template <class T, int D>
__device__ __forceinline__ void load_b(std::uint32_t (&b)[2][2], const unsigned char* tile, int row0,
                                       int step) {
  const int lane = Lane().lane;
  std::uint32_t r[4];
  ldmatrix_x4(r, tile + Tile<T, D>::beyond(Tile<T, D>::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2), row0,
                                           32 * step));
  convert_operands<T>(r);
  b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}
/// Loads the B fragments of two blocks of 8 columns, columns 16 * pair and following of the tile; the inner
/// dimension is the tile's rows from row0 on. bf16: ldmatrix transposes. f32: ldmatrix cannot transpose
/// 4-byte elements, so single words are loaded; inner index t is row 2t and t + 4 is row 2t + 1, the order in
/// which as_operand() has the columns of A (the sum does not depend on the order). The swizzle avoids bank
/// conflicts of these loads as well.
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

/// Converts accumulators to the A operand of the next product, for mma step `step` over their columns,
/// without exchanging data between lanes. bf16: the accumulators of two blocks of 8 columns have the layout
/// of the A fragment of m16n8k16. f32: those of one block have the layout of A of m16n8k8 with the columns in
/// the order 0 2 4 6 1 3 5 7.
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

/// The kM * 16 rows of a tile that a warp owns, as A operands: loaded into registers once (kHeld), or loaded
/// from shared memory for each product if there are not enough registers.
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

/// out[16*kM, 8*kN] = the warp's rows times the transpose of rows 0..8*kN-1 of `other`; inner dimension D. B
/// fragments are used for all kM row blocks.
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

/// sum[16*kM, D] += x[16*kM, 8*kN] (accumulators of an earlier product) times rows 0..8*kN-1 of `tile`.
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

/// Sum over d of d_o * o of one row of one head, for the four lanes that have parts of that row in an
/// accumulator. Each adds every fourth chunk of 16 bytes; then the four sums are added.
template <class T, int D>
__device__ __forceinline__ float row_delta(const T* d_o, const T* o) {
  constexpr int kChunks = Tile<T, D>::kChunks;
  float sum = 0;
#pragma unroll
  for (int base = 0; base < kChunks; base += 4) {
    const int chunk = base + Lane().lane % 4;
    if (kChunks % 4 != 0 && chunk >= kChunks) continue;
    const Vec<T> a = Vec<T>::load(d_o + chunk * Vec<T>::kWidth), b = Vec<T>::load(o + chunk * Vec<T>::kWidth);
#pragma unroll
    for (int i = 0; i < static_cast<int>(Vec<T>::kWidth); ++i) sum = fmaf(a.v[i], b.v[i], sum);
  }
  sum += __shfl_xor_sync(kFullWarp, sum, 1);
  return sum + __shfl_xor_sync(kFullWarp, sum, 2);
}

/// Stores x * factor, the accumulators of a warp, as rows of `to`. Accumulators have 2 elements per lane and
/// row; writing them through the warp's own rows of a shared tile, which no other warp reads, gives
/// contiguous 16-byte stores. row0: first row of the warp in the tile; first: global row of the tile's row 0;
/// rows from `end` on are not stored. factor[m]: for the lane's two rows of block m.
template <class T, int D, int kM>
__device__ __forceinline__ void store_rows(unsigned char* tile, int row0, const float (&x)[kM][D / 8][4],
                                           const float (&factor)[kM][2], T* to, unsigned ld, int first,
                                           int end) {
  using Layout = Tile<T, D>;
  const Lane at;
  __syncwarp();  // other lanes may still read these rows with ldmatrix
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float u = x[m][n][2 * half] * factor[m][half], w = x[m][n][2 * half + 1] * factor[m][half];
        const int row = row0 + 16 * m + at.row(2 * half), column = 8 * n + at.col(0);
        unsigned char* at_element = tile + Layout::offset(row, column / Layout::kChunkElements) +
                                    column % Layout::kChunkElements * static_cast<int>(sizeof(T));
        if constexpr (sizeof(T) == 2)
          *reinterpret_cast<std::uint32_t*>(at_element) = Vec<Bf16>::pack(u, w);
        else
          *reinterpret_cast<float2*>(at_element) = make_float2(u, w);
      }
  __syncwarp();  // the rows are complete
#pragma unroll 4
  for (int i = at.lane; i < 16 * kM * Layout::kChunks; i += 32) {
    const int row = row0 + i / Layout::kChunks, chunk = i % Layout::kChunks;
    if (first + row >= end) break;
    T* out = to + row_at(first + row, ld) + chunk * Layout::kChunkElements;
    *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(tile + Layout::offset(row, chunk));
  }
}

// ---- launches

/// `many` becomes true if a multiprocessor of the current device has shared memory for one block of this many
/// bytes, but not for two. A block of four warps is then alone on its multiprocessor, and one of eight warps
/// shares its tiles of keys and values, in the same memory, among twice as many warps. Device properties
/// are queried, not the compute capability: 8.6, 8.9 and 12.0 have 100 KiB, 8.0 164 and 9.0 228.
inline cudaError_t prefer_many_warps(int bytes, bool& many) {
  constexpr int kReserved = 1024;  // of every block, for the driver
  int device = 0, most = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (e == cudaSuccess)
    e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  many = most < 2 * (bytes + kReserved);
  return e;
}

}  // namespace trainhost::cuda::attention_detail
