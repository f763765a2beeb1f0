// Gradients of attention on tensor cores. Two kernels, both of which recompute the weights from q, k and lse:
// a block of the first has a tile of queries, computes delta and sums dq in registers; a block of the second
// has a tile of keys and sums dk and dv. That is seven products (eight with heads of 256 elements) instead of
// the five of a single kernel, but every sum is computed by one block in a fixed order, without atomics on
// global memory. Why not five: plugins/cuda/README.md, "Products of the backward pass".
#include <cmath>

#include "plugins/cuda/kernels/attention_mma.hpp"

namespace trainhost::cuda::attention_detail {
namespace {

// Tile shapes. "Own" rows are the keys (dk, dv) or queries (dq) of the block; "other" rows are iterated over.
// kM: blocks of 16 own rows per warp; kOther: other rows per tile; kHeld: own rows stay in registers. Two
// blocks of four warps fit on an SM of compute capability 9.0, and one block fits into the 99 KiB of shared
// memory of 8.6 and 8.9. bf16 heads of 128 elements have a variant of eight warps (attention_mma.hpp); the
// others are too large for it.
template <class T, int D, int kWarps>
struct KeysShape {
  static constexpr int kM = D <= 64 ? 2 : 1;
  static constexpr int kOther = D * sizeof(T) <= 384 ? 32 : 16;
  static constexpr bool kHeld = false;
  static constexpr int kOwn = 16 * kM * kWarps;
  static constexpr int kOwnBytes = Tile<T, D>::bytes(kOwn), kOtherBytes = Tile<T, D>::bytes(kOther);
  // A stage: q, dO [kOther, D] each, lse in base 2 and delta [kOther] each.
  static constexpr int kStageBytes = 2 * kOtherBytes + 2 * kOther * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = 2 * kOwnBytes + 2 * kStageBytes;  // k, v, then two stages
};
template <class T, int D, int kWarps>
struct QueriesShape {
  static constexpr int kM = D * sizeof(T) <= 256 && kWarps == kFewWarps ? 2 : 1;
  static constexpr int kOther = D * sizeof(T) <= 384 ? 32 : 16;
  static constexpr bool kHeld = D * sizeof(T) <= 128;
  static constexpr int kOwn = 16 * kM * kWarps;
  static constexpr int kOwnBytes = Tile<T, D>::bytes(kOwn), kOtherBytes = Tile<T, D>::bytes(kOther);
  static constexpr int kSharedBytes = 2 * kOwnBytes + 4 * kOtherBytes;  // q, dO, then two stages of (k, v)
};

// dk and dv. Scores are computed transposed (rows are keys, columns are queries), so that the accumulators p
// and ds are the A operands of dv += p dO and dk += ds q without a transposition. With heads of 256 elements
// the sums of both need more registers than a thread has: then one launch computes dk and another one dv,
// which repeats one product.
template <class T, int D, int kWarps, bool kKeys, bool kValues>
__global__ void __launch_bounds__(32 * kWarps, 8 / kWarps)
    mma_dkv_kernel(const AttentionShape s, float scale, const T* __restrict__ d_o,
                   const float* __restrict__ lse, const float* __restrict__ delta, const T* __restrict__ qkv,
                   T* __restrict__ dqkv) {
  using Shape = KeysShape<T, D, kWarps>;
  constexpr int kM = Shape::kM, kQueries = Shape::kOther, kN = kQueries / 8;
  static_assert(2 * kQueries <= 32 * kWarps);  // one thread per lse and delta of a tile
  const Lane at;
  const int seq = static_cast<int>(s.seq), thread = static_cast<int>(threadIdx.x);
  unsigned char* k = dynamic_shared<unsigned char>();
  unsigned char* v = k + Shape::kOwnBytes;
  unsigned char* stages = v + Shape::kOwnBytes;

  // Tile 0 of the keys has the most queries and is started first. The block adds the query heads of the group
  // in order.
  const unsigned group = s.heads / s.kv_heads, sequence = blockIdx.x / s.kv_heads,
                 first_head = blockIdx.x % s.kv_heads * group;
  const Mask mask{s, sequence};
  const int key0 = static_cast<int>(blockIdx.y) * Shape::kOwn,
            key_end = key0 + Shape::kOwn < seq ? key0 + Shape::kOwn : seq;
  const int stop = mask.end_query(key_end), row0 = warp_index() * 16 * kM, mine = key0 + row0,
            mine_end = mine + 16 * kM;
  const HeadView<T> first = head_view(s, qkv, sequence, first_head);  // k and v are shared by the group

  auto copy_queries = [&](unsigned member, int query0, int stage) {
    unsigned char* to = stages + stage * Shape::kStageBytes;
    copy_rows<T, D, kQueries, kWarps>(to, first.q + static_cast<std::size_t>(member) * D, first.ld, query0,
                                      seq);
    copy_rows<T, D, kQueries, kWarps>(to + Shape::kOtherBytes,
                                      d_o + first.o_at + static_cast<std::size_t>(member) * D, first.o_ld,
                                      query0, seq);
    cp_async_commit();
  };
  // The first kQueries threads load lse, the next ones delta. In rows behind the end of the sequence q, dO,
  // lse and delta are 0: their weights are 2^0 = 1, but they contribute 1 * dO = 0 to dv and ds = 1 * (0 - 0)
  // = 0 to dk.
  auto load_row_value = [&](unsigned member, int query0) {
    const int query = query0 + thread % kQueries;
    if (thread >= 2 * kQueries || query >= seq) return 0.f;
    const std::size_t at_row = first.lse_at + member + row_at(query, s.heads);
    return thread < kQueries ? lse[at_row] * kLog2e : delta[at_row];
  };
  auto store_row_value = [&](float x, int stage) {
    if (thread < 2 * kQueries)
      reinterpret_cast<float*>(stages + stage * Shape::kStageBytes + 2 * Shape::kOtherBytes)[thread] = x;
  };

  copy_rows<T, D, Shape::kOwn, kWarps>(k, first.k, first.ld, key0, seq);
  if constexpr (kKeys) copy_rows<T, D, Shape::kOwn, kWarps>(v, first.v, first.ld, key0, seq);
  copy_queries(0, key0, 0);
  store_row_value(load_row_value(0, key0), 0);

  const WarpRows<T, D, kM, Shape::kHeld> keys{k, row0, {}}, values{v, row0, {}};
  float dk[kKeys ? kM : 1][kKeys ? D / 8 : 1][4] = {}, dv[kValues ? kM : 1][kValues ? D / 8 : 1][4] = {};
  const float to_log2 = scale * kLog2e;
  unsigned member = 0;
  int query0 = key0;
  for (int stage = 0; member < group; stage ^= 1) {
    unsigned next_member = member;
    int next_query0 = query0 + kQueries;
    if (next_query0 >= stop) next_query0 = key0, ++next_member;
    cp_async_wait<0>();
    // Makes the copies of all threads visible; and all warps have finished with the stage that is overwritten
    // next.
    __syncthreads();
    float next_value = 0;  // loaded early, stored to shared memory after the products
    if (next_member < group) {
      copy_queries(next_member, next_query0, stage ^ 1);
      next_value = load_row_value(next_member, next_query0);
    }

    if (mine < seq && query0 + kQueries > mine && mask.reaches(query0, mine_end)) {
      const unsigned char* q = stages + stage * Shape::kStageBytes;
      const unsigned char* g = q + Shape::kOtherBytes;
      const float* lse2 = reinterpret_cast<const float*>(g + Shape::kOtherBytes);
      float p[kM][kN][4], ds[kM][kN][4];  // scores, then weights; dO v, then gradient of the scores
      rows_times_rows(p, keys, q);
      if constexpr (kKeys) rows_times_rows(ds, values, g);
      if (!mask.all_visible(query0, query0 + kQueries, mine, mine_end)) {
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int n = 0; n < kN; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if (!mask.visible(query0 + 8 * n + at.col(i), mine + 16 * m + at.row(i)))
                p[m][n][i] = -INFINITY;
      }
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 columns_lse = *reinterpret_cast<const float2*>(lse2 + 8 * n + at.col(0));
        const float2 columns_delta = *reinterpret_cast<const float2*>(lse2 + kQueries + 8 * n + at.col(0));
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            p[m][n][i] = exp2_approx(fmaf(p[m][n][i], to_log2, i % 2 == 0 ? -columns_lse.x : -columns_lse.y));
            if constexpr (kKeys)
              ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - (i % 2 == 0 ? columns_delta.x : columns_delta.y));
          }
      }
      if constexpr (kValues) add_products<T, D>(dv, p, g);
      if constexpr (kKeys) add_products<T, D>(dk, ds, q);
    }
    if (next_member < group) store_row_value(next_value, stage ^ 1);
    member = next_member, query0 = next_query0;
  }

  // The factor `scale` of the scores applies to dk and dq, not to dv.
  float scales[kM][2], ones[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) scales[m][0] = scales[m][1] = scale, ones[m][0] = ones[m][1] = 1;
  if constexpr (kKeys) store_rows<T, D, kM>(k, row0, dk, scales, dqkv + (first.k - qkv), first.ld, key0, seq);
  if constexpr (kValues) store_rows<T, D, kM>(v, row0, dv, ones, dqkv + (first.v - qkv), first.ld, key0, seq);
}

// dq, and delta for the other kernel. Rows of the scores are queries; ds is the A operand of dq += ds k.
template <class T, int D, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 8 / kWarps)
    mma_dq_kernel(const AttentionShape s, float scale, const T* __restrict__ d_o, const T* __restrict__ o,
                  const float* __restrict__ lse, const T* __restrict__ qkv, float* __restrict__ delta,
                  T* __restrict__ dqkv) {
  using Shape = QueriesShape<T, D, kWarps>;
  constexpr int kM = Shape::kM, kKeys = Shape::kOther, kN = kKeys / 8;
  const Lane at;
  const int seq = static_cast<int>(s.seq);
  unsigned char* q = dynamic_shared<unsigned char>();
  unsigned char* g = q + Shape::kOwnBytes;
  unsigned char* stages = g + Shape::kOwnBytes;

  const HeadView<T> view = head_view(s, qkv, blockIdx.x / s.heads, blockIdx.x % s.heads);
  const Mask mask{s, blockIdx.x / s.heads};
  const int query0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kOwn;
  const int stop = query0 + Shape::kOwn < seq ? query0 + Shape::kOwn : seq;
  const int row0 = warp_index() * 16 * kM, mine = query0 + row0, mine_end = mine + 16 * kM;

  auto copy_keys = [&](int key0, int stage) {
    copy_keys_values<T, D, kKeys, kWarps>(stages + 2 * stage * Shape::kOtherBytes, view.k,
                                          static_cast<std::size_t>(s.kv_heads) * D, view.ld, key0, seq);
    cp_async_commit();
  };

  int key0 = mask.first_key(query0) / kKeys * kKeys, stage = 0;
  copy_rows<T, D, Shape::kOwn, kWarps>(q, view.q, view.ld, query0, seq);
  copy_rows<T, D, Shape::kOwn, kWarps>(g, d_o + view.o_at, view.o_ld, query0, seq);
  copy_keys(key0, stage);

  float row_lse[kM][2], deltas[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = mine + 16 * m + at.row(2 * half), row = query < seq ? query : seq - 1;
      const std::size_t at_row = view.lse_at + row_at(row, s.heads),
                        at_o = view.o_at + row_at(row, view.o_ld);
      row_lse[m][half] = lse[at_row] * kLog2e;
      deltas[m][half] = row_delta<T, D>(d_o + at_o, o + at_o);
      if (query < seq && at.lane % 4 == 0) delta[at_row] = deltas[m][half];
    }
  WarpRows<T, D, kM, Shape::kHeld> queries{q, row0, {}}, gradients{g, row0, {}};
  if constexpr (Shape::kHeld) {
    cp_async_wait<0>();
    __syncthreads();  // q and dO are complete
    queries.load(), gradients.load();
  }

  float dq[kM][D / 8][4] = {};
  const float to_log2 = scale * kLog2e;
  for (; key0 < stop; key0 += kKeys, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // as in mma_dkv_kernel
    if (key0 + kKeys < stop) copy_keys(key0 + kKeys, stage ^ 1);
    if (mine >= seq || key0 >= mine_end || key0 + kKeys <= mask.first_key(mine))
      continue;  // the whole tile is masked for this warp
    const unsigned char* k = stages + 2 * stage * Shape::kOtherBytes;
    const unsigned char* v = k + Shape::kOtherBytes;

    float p[kM][kN][4], ds[kM][kN][4];
    rows_times_rows(p, queries, k);
    rows_times_rows(ds, gradients, v);
    if (!mask.all_visible(mine, mine_end, key0, key0 + kKeys)) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (!mask.visible(mine + 16 * m + at.row(i), key0 + 8 * n + at.col(i))) p[m][n][i] = -INFINITY;
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          ds[m][n][i] =
              exp2_approx(fmaf(p[m][n][i], to_log2, -row_lse[m][i / 2])) * (ds[m][n][i] - deltas[m][i / 2]);
    add_products<T, D>(dq, ds, k);
  }

  float scales[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) scales[m][0] = scales[m][1] = scale;
  store_rows<T, D, kM>(q, row0, dq, scales, dqkv + (view.q - qkv), view.ld, query0, seq);
}

template <class T, int D, int kWarps>
cudaError_t run_with(cudaStream_t stream, const AttentionShape& s, const T* d_o, const T* o, const float* lse,
                     const T* qkv, float* delta, T* dqkv) {
  using Keys = KeysShape<T, D, kWarps>;
  using Queries = QueriesShape<T, D, kWarps>;
  const float scale = 1.f / std::sqrt(static_cast<float>(D));
  const cudaError_t e =
      launch(mma_dq_kernel<T, D, kWarps>, dim3(s.sequences * s.heads, tiles(s.seq, Queries::kOwn)),
             dim3(32 * kWarps), Queries::kSharedBytes, stream, s, scale, d_o, o, lse, qkv, delta, dqkv);
  if (e != cudaSuccess) return e;
  const auto keys_values = [&](auto kernel) {
    return launch(kernel, dim3(s.sequences * s.kv_heads, tiles(s.seq, Keys::kOwn)), dim3(32 * kWarps),
                  Keys::kSharedBytes, stream, s, scale, d_o, lse, static_cast<const float*>(delta), qkv,
                  dqkv);
  };
  if constexpr (D <= 128) {
    return keys_values(mma_dkv_kernel<T, D, kWarps, true, true>);
  } else {
    const cudaError_t keys = keys_values(mma_dkv_kernel<T, D, kWarps, true, false>);
    return keys != cudaSuccess ? keys : keys_values(mma_dkv_kernel<T, D, kWarps, false, true>);
  }
}

template <class T, int D>
cudaError_t run(cudaStream_t stream, const AttentionShape& s, const T* d_o, const T* o, const float* lse,
                const T* qkv, float* delta, T* dqkv) {
  if constexpr (D == 128 && sizeof(T) == 2) {
    bool many = false;
    const cudaError_t e = prefer_many_warps(KeysShape<T, D, kFewWarps>::kSharedBytes, many);
    if (e != cudaSuccess) return e;
    if (many) return run_with<T, D, kManyWarps>(stream, s, d_o, o, lse, qkv, delta, dqkv);
  }
  return run_with<T, D, kFewWarps>(stream, s, d_o, o, lse, qkv, delta, dqkv);
}

}  // namespace

template <class T>
cudaError_t mma_backward(cudaStream_t stream, const AttentionShape& s, const T* d_o, const T* o,
                         const float* lse, const T* qkv, float* delta, T* dqkv) {
  if constexpr (sizeof(T) == 2) {
    if (s.d == 48) return run<T, 48>(stream, s, d_o, o, lse, qkv, delta, dqkv);
    if (s.d == 80) return run<T, 80>(stream, s, d_o, o, lse, qkv, delta, dqkv);
    if (s.d == 256) return run<T, 256>(stream, s, d_o, o, lse, qkv, delta, dqkv);
  }
  switch (s.d) {
    case 32:
      return run<T, 32>(stream, s, d_o, o, lse, qkv, delta, dqkv);
    case 64:
      return run<T, 64>(stream, s, d_o, o, lse, qkv, delta, dqkv);
    case 96:
      return run<T, 96>(stream, s, d_o, o, lse, qkv, delta, dqkv);
    case 128:
      return run<T, 128>(stream, s, d_o, o, lse, qkv, delta, dqkv);
    default:
      return cudaErrorInvalidValue;
  }
}
template cudaError_t mma_backward(cudaStream_t, const AttentionShape&, const float*, const float*,
                                  const float*, const float*, float*, float*);
template cudaError_t mma_backward(cudaStream_t, const AttentionShape&, const Bf16*, const Bf16*, const float*,
                                  const Bf16*, float*, Bf16*);

}  // namespace trainhost::cuda::attention_detail
