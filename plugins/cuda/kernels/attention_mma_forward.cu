// Attention on tensor cores, after FlashAttention-2 (Dao 2023). A block has a tile of queries of one head and
// iterates over tiles of keys with an online softmax in base 2. Scores and weights stay in registers. The
// tile of keys and values after the current one is copied asynchronously (two stages). Tiles that are
// completely masked are skipped.
#include <cmath>

#include "plugins/cuda/kernels/attention_mma.hpp"

namespace trainhost::cuda::attention_detail {
namespace {

// Tile shapes. kM: blocks of 16 queries per warp; kKeys: keys per tile; kHeld: queries stay in registers.
// Chosen so that two blocks of four warps fit on an SM of compute capability 8.0 or 9.0 by registers, and one
// block fits into the 99 KiB of shared memory of 8.6 and 8.9. Heads of 128 elements have a variant of eight
// warps for SMs with shared memory for one block only.
template <class T, int D, int kWarps>
struct ForwardShape {
  static constexpr bool kSmall = D * sizeof(T) <= 256;  // a row has at most 256 bytes
  static constexpr int kM = kSmall ? 2 : 1;
  static constexpr int kKeys = D <= 64 ? 64 : kWarps == kManyWarps && !kSmall ? 16 : 32;
  static constexpr bool kHeld = D * sizeof(T) <= 128;
  static constexpr int kQueries = 16 * kM * kWarps;
  static constexpr int kQueryBytes = Tile<T, D>::bytes(kQueries), kTileBytes = Tile<T, D>::bytes(kKeys);
  static constexpr int kSharedBytes = kQueryBytes + 4 * kTileBytes;  // q, then two stages of (k, v)
};

template <class T, int D, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 8 / kWarps)
    mma_forward_kernel(const AttentionShape s, float scale, const T* __restrict__ qkv, T* __restrict__ o,
                       float* __restrict__ lse) {
  using Shape = ForwardShape<T, D, kWarps>;
  constexpr int kM = Shape::kM, kKeys = Shape::kKeys, kN = kKeys / 8;
  const Lane at;
  const int seq = static_cast<int>(s.seq);
  unsigned char* q = dynamic_shared<unsigned char>();
  unsigned char* stages = q + Shape::kQueryBytes;

  // Grid x: sequences and heads; y: tiles of queries in reverse. The last tile has the most keys, so it is
  // started first, and the short ones fill the remaining SMs at the end.
  const HeadView<T> view = head_view(s, qkv, blockIdx.x / s.heads, blockIdx.x % s.heads);
  const Mask mask{s, blockIdx.x / s.heads};
  const int query0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kQueries;
  const int stop = query0 + Shape::kQueries < seq ? query0 + Shape::kQueries : seq;
  const int row0 = warp_index() * 16 * kM, mine = query0 + row0,
            mine_end = mine + 16 * kM;  // the warp's queries

  auto copy_keys = [&](int key0, int stage) {
    copy_keys_values<T, D, kKeys, kWarps>(stages + 2 * stage * Shape::kTileBytes, view.k,
                                          static_cast<std::size_t>(s.kv_heads) * D, view.ld, key0, seq);
    cp_async_commit();
  };

  int key0 = mask.first_key(query0) / kKeys * kKeys, stage = 0;
  copy_rows<T, D, Shape::kQueries, kWarps>(q, view.q, view.ld, query0, seq);
  copy_keys(key0, stage);

  WarpRows<T, D, kM, Shape::kHeld> queries{q, row0, {}};
  if constexpr (Shape::kHeld) {
    cp_async_wait<0>();
    __syncthreads();
    queries.load();
  }

  // Per row: unnormalised output; maximum of the unscaled scores so far; sum of the weights in this lane's
  // columns. A lane has two rows of each block of 16 (half 0 and 1); the four lanes of a row have
  // neighbouring indices.
  float sum[kM][D / 8][4] = {}, top[kM][2], total[kM][2] = {};
#pragma unroll
  for (int m = 0; m < kM; ++m) top[m][0] = top[m][1] = -INFINITY;
  const float to_log2 = scale * kLog2e;  // exp(scale * x) = 2^(to_log2 * x)

  for (; key0 < stop; key0 += kKeys, stage ^= 1) {
    cp_async_wait<0>();
    // Makes the copies of all threads visible; and all warps have finished with the stage that is overwritten
    // next.
    __syncthreads();
    if (key0 + kKeys < stop) copy_keys(key0 + kKeys, stage ^ 1);
    if (mine >= seq || key0 >= mine_end || key0 + kKeys <= mask.first_key(mine))
      continue;  // the whole tile is masked for this warp
    const unsigned char* k = stages + 2 * stage * Shape::kTileBytes;

    float score[kM][kN][4];
    rows_times_rows(score, queries, k);
    if (!mask.all_visible(mine, mine_end, key0, key0 + kKeys)) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (!mask.visible(mine + 16 * m + at.row(i), key0 + 8 * n + at.col(i)))
              score[m][n][i] = -INFINITY;
    }

#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float high = top[m][half];
#pragma unroll
        for (int n = 0; n < kN; ++n)
          high = fmaxf(high, fmaxf(score[m][n][2 * half], score[m][n][2 * half + 1]));
        // The columns of a row are spread over 4 lanes.
        high = fmaxf(high, __shfl_xor_sync(kFullWarp, high, 1));
        high = fmaxf(high, __shfl_xor_sync(kFullWarp, high, 2));
        // If all keys so far were masked for this row, its maximum is -inf. Shifting by 0 instead makes all
        // its weights 2^-inf = 0; shifting by -inf would give NaN.
        const float shift = high == -INFINITY ? 0.f : high * to_log2;
        const float shrink = exp2_approx(fmaf(top[m][half], to_log2, -shift));
        top[m][half] = high;
        total[m][half] *= shrink;
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            score[m][n][i] = exp2_approx(fmaf(score[m][n][i], to_log2, -shift));
            total[m][half] += score[m][n][i];
          }
#pragma unroll
        for (int n = 0; n < D / 8; ++n) sum[m][n][2 * half] *= shrink, sum[m][n][2 * half + 1] *= shrink;
      }
    add_products<T, D>(sum, score, k + Shape::kTileBytes);
  }

  // Normalisation: 1 / sum of weights per row. lse = maximum + log(sum), of the scaled scores, in base e.
  float inverse[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = total[m][half];
      all += __shfl_xor_sync(kFullWarp, all, 1);
      all += __shfl_xor_sync(kFullWarp, all, 2);
      inverse[m][half] = 1.f / all;
      const int query = mine + 16 * m + at.row(2 * half);
      if (query < seq && at.lane % 4 == 0)
        lse[view.lse_at + row_at(query, s.heads)] = top[m][half] * scale + logf(all);
    }
  store_rows<T, D, kM>(q, row0, sum, inverse, o + view.o_at, view.o_ld, query0, seq);
}

template <class T, int D, int kWarps>
cudaError_t run_with(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse) {
  using Shape = ForwardShape<T, D, kWarps>;
  return launch(mma_forward_kernel<T, D, kWarps>, dim3(s.sequences * s.heads, tiles(s.seq, Shape::kQueries)),
                dim3(32 * kWarps), Shape::kSharedBytes, stream, s, 1.f / std::sqrt(static_cast<float>(D)),
                qkv, o, lse);
}

template <class T, int D>
cudaError_t run(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse) {
  if constexpr (D == 128) {
    bool many = false;
    const cudaError_t e = prefer_many_warps(ForwardShape<T, D, kFewWarps>::kSharedBytes, many);
    if (e != cudaSuccess) return e;
    if (many) return run_with<T, D, kManyWarps>(stream, s, qkv, o, lse);
  }
  return run_with<T, D, kFewWarps>(stream, s, qkv, o, lse);
}

}  // namespace

template <class T>
cudaError_t mma_forward(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse) {
  if constexpr (sizeof(T) == 2) {
    if (s.d == 48) return run<T, 48>(stream, s, qkv, o, lse);
    if (s.d == 80) return run<T, 80>(stream, s, qkv, o, lse);
    if (s.d == 256) return run<T, 256>(stream, s, qkv, o, lse);
  }
  switch (s.d) {
    case 32:
      return run<T, 32>(stream, s, qkv, o, lse);
    case 64:
      return run<T, 64>(stream, s, qkv, o, lse);
    case 96:
      return run<T, 96>(stream, s, qkv, o, lse);
    case 128:
      return run<T, 128>(stream, s, qkv, o, lse);
    default:
      return cudaErrorInvalidValue;
  }
}
template cudaError_t mma_forward(cudaStream_t, const AttentionShape&, const float*, float*, float*);
template cudaError_t mma_forward(cudaStream_t, const AttentionShape&, const Bf16*, Bf16*, float*);

}  // namespace trainhost::cuda::attention_detail
