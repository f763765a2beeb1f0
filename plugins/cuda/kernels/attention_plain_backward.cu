// Gradients of attention for any head size in f32 FMA arithmetic. Two kernels, both of which recompute the
// probabilities from q, k and lse: a block of the first has a tile of keys and sums dk and dv over the
// queries; a block of the second has a tile of queries and sums dq over the keys. So every sum is computed by
// one block in a fixed order, without atomics.
#include <cmath>

#include "plugins/cuda/kernels/attention_plain.hpp"

namespace trainhost::cuda::attention_detail {
namespace {

// Shared memory: k, v, q, dO [kTile, d] each; p and ds [kTile, kTile + 1] each (dq uses ds only).
template <int R>
std::size_t shared_bytes(int d) {
  constexpr int kTile = 16 * R;
  return sizeof(float) * static_cast<std::size_t>(4 * kTile * plain_pitch(d) + 2 * kTile * (kTile + 1));
}

// p = exp(scale q k - lse), ds = p (dO v - delta); both 0 if masked. `scale` is applied to the sums of ds at
// the end.
struct Probability {
  float p, ds;
};
__device__ __forceinline__ Probability probability(bool seen, float score, float scale, float lse, float d_p,
                                                   float delta) {
  const float p = seen ? expf(score * scale - lse) : 0.f;
  return {p, p * (d_p - delta)};
}

template <class T, int D, int R>
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_dkv_kernel(const AttentionShape s, float scale, const T* __restrict__ d_o,
                     const float* __restrict__ lse, const float* __restrict__ delta,
                     const T* __restrict__ qkv, T* __restrict__ dqkv) {
  constexpr int kTile = 16 * R, kCols = D / 16;
  const PlainThread<R> t;
  const int d = static_cast<int>(s.d), seq = static_cast<int>(s.seq);
  float* k = dynamic_shared<float>();
  float* v = k + kTile * plain_pitch(d);
  float* q = v + kTile * plain_pitch(d);
  float* g = q + kTile * plain_pitch(d);
  float* p = g + kTile * plain_pitch(d);
  float* ds = p + kTile * (kTile + 1);

  // Tile 0 of the keys has the most queries and is started first. All query heads of the group share this
  // key/value head; the block adds them in order.
  const unsigned group = s.heads / s.kv_heads, sequence = blockIdx.x / s.kv_heads,
                 kv_head = blockIdx.x % s.kv_heads;
  const Mask mask{s, sequence};
  const int key0 = static_cast<int>(blockIdx.y) * kTile,
            stop = mask.end_query(key0 + kTile < seq ? key0 + kTile : seq);
  const HeadView<T> first = head_view(s, qkv, sequence, kv_head * group);
  load_tile<kTile>(k, first.k, first.ld, key0, seq, d);
  load_tile<kTile>(v, first.v, first.ld, key0, seq, d);

  float dk[R][kCols] = {}, dv[R][kCols] = {};
  for (unsigned member = 0; member < group; ++member) {
    const HeadView<T> view = head_view(s, qkv, sequence, kv_head * group + member);
    for (int query0 = key0; query0 < stop; query0 += kTile) {
      __syncthreads();  // q, dO, p and ds of the previous tile are no longer read
      load_tile<kTile>(q, view.q, view.ld, query0, seq, d);
      load_tile<kTile>(g, d_o + view.o_at, view.o_ld, query0, seq, d);
      __syncthreads();               // the tiles are complete
      float score[R][R], d_p[R][R];  // rows are keys, columns are queries
      rows_times_rows(t, k, q, d, score);
      rows_times_rows(t, v, g, d, d_p);
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const int query = query0 + t.col(j);
        const std::size_t at = view.lse_at + row_at(query < seq ? query : seq - 1, s.heads);
#pragma unroll
        for (int i = 0; i < R; ++i) {
          const bool seen = query < seq && mask.visible(query, key0 + t.row(i));
          const Probability w = probability(seen, score[i][j], scale, lse[at], d_p[i][j], delta[at]);
          p[t.row(i) * (kTile + 1) + t.col(j)] = w.p;
          ds[t.row(i) * (kTile + 1) + t.col(j)] = w.ds;
        }
      }
      __syncthreads();  // p and ds are complete
      add_products(t, p, g, d, dv);
      add_products(t, ds, q, d, dk);
    }
  }

  // dqkv has the layout of qkv, so gradients have the same offsets; dv is kv_heads * d elements behind dk.
  T* to = dqkv + (first.k - qkv);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (key0 + t.row(i) >= seq) continue;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      if (t.col(c) >= d) break;
      const std::size_t at = row_at(key0 + t.row(i), first.ld) + t.col(c);
      to[at] = from_float<T>(dk[i][c] * scale);
      to[at + (first.v - first.k)] = from_float<T>(dv[i][c]);
    }
  }
}

template <class T, int D, int R>
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_dq_kernel(const AttentionShape s, float scale, const T* __restrict__ d_o,
                    const float* __restrict__ lse, const float* __restrict__ delta, const T* __restrict__ qkv,
                    T* __restrict__ dqkv) {
  constexpr int kTile = 16 * R, kCols = D / 16;
  const PlainThread<R> t;
  const int d = static_cast<int>(s.d), seq = static_cast<int>(s.seq);
  float* k = dynamic_shared<float>();
  float* v = k + kTile * plain_pitch(d);
  float* q = v + kTile * plain_pitch(d);
  float* g = q + kTile * plain_pitch(d);
  float* ds = g + kTile * plain_pitch(d);

  const HeadView<T> view = head_view(s, qkv, blockIdx.x / s.heads, blockIdx.x % s.heads);
  const Mask mask{s, blockIdx.x / s.heads};
  const int query0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTile;
  const int last_key = query0 + kTile < seq ? query0 + kTile : seq;
  load_tile<kTile>(q, view.q, view.ld, query0, seq, d);
  load_tile<kTile>(g, d_o + view.o_at, view.o_ld, query0, seq, d);
  float row_lse[R], row_delta[R], dq[R][kCols] = {};
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int query = query0 + t.row(i) < seq ? query0 + t.row(i) : seq - 1;
    row_lse[i] = lse[view.lse_at + row_at(query, s.heads)];
    row_delta[i] = delta[view.lse_at + row_at(query, s.heads)];
  }

  for (int key0 = mask.first_key(query0) / kTile * kTile; key0 < last_key; key0 += kTile) {
    __syncthreads();  // k, v and ds of the previous tile are no longer read
    load_tile<kTile>(k, view.k, view.ld, key0, seq, d);
    load_tile<kTile>(v, view.v, view.ld, key0, seq, d);
    __syncthreads();               // the tiles are complete
    float score[R][R], d_p[R][R];  // rows are queries, columns are keys
    rows_times_rows(t, q, k, d, score);
    rows_times_rows(t, g, v, d, d_p);
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const bool seen = mask.visible(query0 + t.row(i), key0 + t.col(j));
        ds[t.row(i) * (kTile + 1) + t.col(j)] =
            probability(seen, score[i][j], scale, row_lse[i], d_p[i][j], row_delta[i]).ds;
      }
    __syncthreads();  // ds is complete
    add_products(t, ds, k, d, dq);
  }

  T* to = dqkv + (view.q - qkv);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (query0 + t.row(i) >= seq) continue;
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      if (t.col(c) < d) to[row_at(query0 + t.row(i), view.ld) + t.col(c)] = from_float<T>(dq[i][c] * scale);
  }
}

template <class T, int D, int R>
cudaError_t run(cudaStream_t stream, const AttentionShape& s, const T* d_o, const float* lse,
                const float* delta, const T* qkv, T* dqkv) {
  const unsigned count = tiles(s.seq, 16 * R);
  const std::size_t shared = shared_bytes<R>(static_cast<int>(s.d));
  const float scale = 1.f / std::sqrt(static_cast<float>(s.d));
  const cudaError_t e = launch(plain_dkv_kernel<T, D, R>, dim3(s.sequences * s.kv_heads, count),
                               dim3(kPlainThreads), shared, stream, s, scale, d_o, lse, delta, qkv, dqkv);
  if (e != cudaSuccess) return e;
  return launch(plain_dq_kernel<T, D, R>, dim3(s.sequences * s.heads, count), dim3(kPlainThreads), shared,
                stream, s, scale, d_o, lse, delta, qkv, dqkv);
}

}  // namespace

// Tiles are smaller for larger heads, so that a block needs at most 100 KiB of shared memory.
template <class T>
cudaError_t plain_backward(cudaStream_t stream, const AttentionShape& s, const T* d_o, const float* lse,
                           const float* delta, const T* qkv, T* dqkv) {
  if (s.d <= 64) return run<T, 64, 4>(stream, s, d_o, lse, delta, qkv, dqkv);
  if (s.d <= 128) return run<T, 128, 2>(stream, s, d_o, lse, delta, qkv, dqkv);
  return run<T, 256, 1>(stream, s, d_o, lse, delta, qkv, dqkv);
}
template cudaError_t plain_backward(cudaStream_t, const AttentionShape&, const float*, const float*,
                                    const float*, const float*, float*);
template cudaError_t plain_backward(cudaStream_t, const AttentionShape&, const Bf16*, const float*,
                                    const float*, const Bf16*, Bf16*);

}  // namespace trainhost::cuda::attention_detail
