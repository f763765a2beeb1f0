// Attention for any head size in f32 FMA arithmetic: exact f32 runs, head sizes that the tensor-core kernel
// does not take, and a check of that kernel. One block per tile of queries and head walks the keys with a
// running maximum and sum (Milakov and Gimelshein 2018; FlashAttention), so memory is O(seq). Never keeps a
// row of scores.
#include <cmath>

#include "plugins/cuda/kernels/attention_plain.hpp"

namespace trainhost::cuda::attention_detail {
namespace {

// Shared: q[kTile, d], k and later v[kTile, d], p[kTile, kTile].
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

  // Heads and sequences along x; tiles along y, the last first: it has the most keys.
  const HeadView<T> view = head_view(s, qkv, blockIdx.x / s.heads, blockIdx.x % s.heads);
  const int query0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTile;
  const int last_key = query0 + kTile < seq ? query0 + kTile : seq;
  load_tile<kTile>(q, view.q, view.ld, query0, seq, d);

  float sum[R][kCols] = {}, total[R] = {}, top[R];
#pragma unroll
  for (int i = 0; i < R; ++i) top[i] = -INFINITY;

  for (int key0 = first_key(s, query0) / kTile * kTile; key0 < last_key; key0 += kTile) {
    __syncthreads();  // everyone has used v and p of the tile before
    load_tile<kTile>(kv, view.k, view.ld, key0, seq, d);
    __syncthreads();
    float score[R][R];
    rows_times_rows(t, q, kv, d, score);
    __syncthreads();  // everyone has used k
    load_tile<kTile>(kv, view.v, view.ld, key0, seq, d);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      float high = top[i];
#pragma unroll
      for (int j = 0; j < R; ++j) {
        score[i][j] = visible(s, query0 + t.row(i), key0 + t.col(j)) ? score[i][j] * scale : -INFINITY;
        high = fmaxf(high, score[i][j]);
      }
      for (int lanes = 8; lanes != 0; lanes /= 2) high = fmaxf(high, __shfl_xor_sync(kFullWarp, high, lanes));
      // A row that has seen no key yet keeps -inf; 0 in its place makes every weight exp(-inf) = 0 instead of
      // NaN.
      const float shift = high == -INFINITY ? 0.f : high, shrink = expf(top[i] - shift);
      top[i] = high;
      float row_sum = 0;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const float weight = expf(score[i][j] - shift);
        row_sum += weight;
        p[t.row(i) * (kTile + 1) + t.col(j)] = weight;
      }
      total[i] = fmaf(total[i], shrink, row_sum);  // this thread's columns alone; added up at the end
#pragma unroll
      for (int c = 0; c < kCols; ++c) sum[i][c] *= shrink;
    }
    __syncthreads();
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

// Tiles shrink as heads grow, so that 100 KiB of shared memory a block suffice.
template <class T>
cudaError_t plain_forward(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse) {
  if (s.d <= 64) return run<T, 64, 4>(stream, s, qkv, o, lse);
  if (s.d <= 128) return run<T, 128, 4>(stream, s, qkv, o, lse);
  return run<T, 256, 2>(stream, s, qkv, o, lse);
}
template cudaError_t plain_forward(cudaStream_t, const AttentionShape&, const float*, float*, float*);
template cudaError_t plain_forward(cudaStream_t, const AttentionShape&, const Bf16*, Bf16*, float*);

}  // namespace trainhost::cuda::attention_detail
