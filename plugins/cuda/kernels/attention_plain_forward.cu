// Attention for any head size in f32 FMA arithmetic: used for exact f32, for head sizes without a tensor-core
// kernel, and to check that kernel. A block has a tile of queries of one head and iterates over tiles of keys
// with an online softmax (running maximum and sum; Milakov and Gimelshein 2018, FlashAttention). Only one
// tile of scores exists at a time.
#include <cmath>

#include "plugins/cuda/kernels/attention_plain.hpp"

namespace trainhost::cuda::attention_detail {
namespace {

// Shared memory: q [kTile, d]; k, then v [kTile, d]; p [kTile, kTile + 1].
template <int R>
std::size_t shared_bytes(int d) {
  constexpr int kTile = 16 * R;
  return sizeof(float) * static_cast<std::size_t>(2 * kTile * plain_pitch(d) + kTile * (kTile + 1));
}

template <class T, int D, int R>
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_forward_kernel(const AttentionShape s, float scale, const T* __restrict__ qkv, T* __restrict__ o,
                         float* __restrict__ lse) {
  constexpr int kTile = 16 * R, kCols = D / 16;
  const PlainThread<R> t;
  const int d = static_cast<int>(s.d), seq = static_cast<int>(s.seq);
  float* q = dynamic_shared<float>();
  float* kv = q + kTile * plain_pitch(d);
  float* p = kv + kTile * plain_pitch(d);

  // Grid x: sequences and heads; y: tiles of queries in reverse. The last tile has the most keys, so it is
  // started first, and the short ones fill the remaining SMs at the end.
  const HeadView<T> view = head_view(s, qkv, blockIdx.x / s.heads, blockIdx.x % s.heads);
  const Mask mask{s, blockIdx.x / s.heads};
  const int query0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTile;
  const int last_key = query0 + kTile < seq ? query0 + kTile : seq;
  load_tile<kTile>(q, view.q, view.ld, query0, seq, d);

  // Per row: unnormalised output, sum of weights (this thread's columns only), maximum of the scaled scores.
  float sum[R][kCols] = {}, total[R] = {}, top[R];
#pragma unroll
  for (int i = 0; i < R; ++i) top[i] = -INFINITY;

  for (int key0 = mask.first_key(query0) / kTile * kTile; key0 < last_key; key0 += kTile) {
    __syncthreads();  // v and p of the previous tile are no longer read
    load_tile<kTile>(kv, view.k, view.ld, key0, seq, d);
    __syncthreads();
    float score[R][R];
    rows_times_rows(t, q, kv, d, score);
    __syncthreads();  // k is no longer read; v replaces it
    load_tile<kTile>(kv, view.v, view.ld, key0, seq, d);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      float high = top[i];
#pragma unroll
      for (int j = 0; j < R; ++j) {
        score[i][j] = mask.visible(query0 + t.row(i), key0 + t.col(j)) ? score[i][j] * scale : -INFINITY;
        high = fmaxf(high, score[i][j]);
      }
      // The 16 threads of a row are 16 neighbouring lanes.
      for (int lanes = 8; lanes != 0; lanes /= 2) high = fmaxf(high, __shfl_xor_sync(kFullWarp, high, lanes));
      // With a window, all keys of the first tile may be masked for a row: its maximum is still -inf.
      // Shifting by 0 instead makes all its weights exp(-inf) = 0; shifting by -inf would give NaN.
      const float shift = high == -INFINITY ? 0.f : high, shrink = expf(top[i] - shift);
      top[i] = high;
      float row_sum = 0;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const float weight = expf(score[i][j] - shift);
        row_sum += weight;
        p[t.row(i) * (kTile + 1) + t.col(j)] = weight;
      }
      total[i] = fmaf(total[i], shrink, row_sum);  // added over the threads of the row at the end
#pragma unroll
      for (int c = 0; c < kCols; ++c) sum[i][c] *= shrink;
    }
    __syncthreads();  // v and p are complete
    add_products(t, p, kv, d, sum);
  }

#pragma unroll
  for (int i = 0; i < R; ++i) {
    for (int lanes = 8; lanes != 0; lanes /= 2) total[i] += __shfl_xor_sync(kFullWarp, total[i], lanes);
    const int query = query0 + t.row(i);
    if (query >= seq) continue;
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      if (t.col(c) < d)
        o[view.o_at + row_at(query, view.o_ld) + t.col(c)] = from_float<T>(sum[i][c] / total[i]);
    if (t.tx == 0) lse[view.lse_at + row_at(query, s.heads)] = top[i] + logf(total[i]);
  }
}

template <class T, int D, int R>
cudaError_t run(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse) {
  const dim3 grid(s.sequences * s.heads, tiles(s.seq, 16 * R));
  return launch(plain_forward_kernel<T, D, R>, grid, dim3(kPlainThreads),
                shared_bytes<R>(static_cast<int>(s.d)), stream, s, 1.f / std::sqrt(static_cast<float>(s.d)),
                qkv, o, lse);
}

}  // namespace

// Tiles are smaller for larger heads, so that a block needs at most 100 KiB of shared memory.
template <class T>
cudaError_t plain_forward(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse) {
  if (s.d <= 64) return run<T, 64, 4>(stream, s, qkv, o, lse);
  if (s.d <= 128) return run<T, 128, 4>(stream, s, qkv, o, lse);
  return run<T, 256, 2>(stream, s, qkv, o, lse);
}
template cudaError_t plain_forward(cudaStream_t, const AttentionShape&, const float*, float*, float*);
template cudaError_t plain_forward(cudaStream_t, const AttentionShape&, const Bf16*, Bf16*, float*);

}  // namespace trainhost::cuda::attention_detail
