// Building blocks of the plain attention kernels: 256 threads as a 16 x 16 grid, square tiles of 16R x 16R
// scores, of which each thread computes R x R, and tiles of q, k and v in shared memory as f32. All products
// are f32 FMA.
#pragma once
#include "plugins/cuda/kernels/attention_common.hpp"

namespace trainhost::cuda::attention_detail {

inline constexpr int kPlainThreads = 256;

/// Position of a thread: it owns rows ty*R + i and columns tx + 16*j of a tile of 16R x 16R scores, and
/// columns tx + 16*c < d of a row of the result. The 16 threads of one row are neighbouring lanes of a warp.
template <int R>
struct PlainThread {
  static constexpr int kTile = 16 * R;
  int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  __device__ __forceinline__ int row(int i) const { return ty * R + i; }
  __device__ __forceinline__ int col(int j) const { return tx + 16 * j; }
};

/// Floats between rows of a tile in shared memory: odd, so that 16 rows at the same column are in 16
/// different banks.
__host__ __device__ __forceinline__ int plain_pitch(int d) { return d | 1; }

/// Loads rows [first, first + kTile) of a matrix with rows of ld elements, one warp per row; rows from `end`
/// on become 0. Contains no barrier: the caller synchronises before the tile is read.
template <int kTile, class T>
__device__ __forceinline__ void load_tile(float* tile, const T* from, unsigned ld, int first, int end,
                                          int d) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int r = warp; r < kTile; r += kPlainThreads / 32) {
    const T* row = from + row_at(first + r, ld);
    for (int c = lane; c < d; c += 32)
      tile[r * plain_pitch(d) + c] = first + r < end ? to_float(row[c]) : 0.f;
  }
}

/// out[i][j] = dot product of row(i) of a and row col(j) of b over d. Per element of d: 2R loads and R * R
/// FMAs.
template <int R>
__device__ __forceinline__ void rows_times_rows(const PlainThread<R>& t, const float* a, const float* b,
                                                int d, float (&out)[R][R]) {
  const int pitch = plain_pitch(d);
#pragma unroll
  for (int i = 0; i < R; ++i)
#pragma unroll
    for (int j = 0; j < R; ++j) out[i][j] = 0;
#pragma unroll 4
  for (int x = 0; x < d; ++x) {
    float u[R], w[R];
#pragma unroll
    for (int i = 0; i < R; ++i) u[i] = a[t.row(i) * pitch + x];
#pragma unroll
    for (int j = 0; j < R; ++j) w[j] = b[t.col(j) * pitch + x];
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < R; ++j) out[i][j] = fmaf(u[i], w[j], out[i][j]);
  }
}

/// sum[i][c] += row(i) of p times column col(c) of b. p: [kTile, kTile] with a pitch of kTile + 1 floats,
/// which is odd; b: [kTile, d].
template <int R, int C>
__device__ __forceinline__ void add_products(const PlainThread<R>& t, const float* p, const float* b, int d,
                                             float (&sum)[R][C]) {
  constexpr int kTile = PlainThread<R>::kTile;
  const int pitch = plain_pitch(d);
#pragma unroll 4
  for (int x = 0; x < kTile; ++x) {
    float u[R];
#pragma unroll
    for (int i = 0; i < R; ++i) u[i] = p[t.row(i) * (kTile + 1) + x];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (t.col(c) >= d) break;
      const float w = b[x * pitch + t.col(c)];
#pragma unroll
      for (int i = 0; i < R; ++i) sum[i][c] = fmaf(u[i], w, sum[i][c]);
    }
  }
}

}  // namespace trainhost::cuda::attention_detail
