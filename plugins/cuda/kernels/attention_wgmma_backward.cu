// Gradients of attention for compute capability 9.0 in bf16, heads of 64 and 128 elements: the two kernels of
// attention_mma_backward.cu with products of warpgroups. While a warpgroup computes weights, its next product
// runs: each product is waited for where its sums are needed. Compiled for sm_90a only.
#include <cmath>
#include <type_traits>

#include "plugins/cuda/kernels/attention_wgmma.hpp"

namespace trainhost::cuda::attention_detail {
namespace {

// Tile shapes, chosen by measurement on an H100 (plugins/cuda/README.md). "Own" rows are the keys (dk, dv) or
// queries (dq) of the block; kParts: products of 64 queries that are in flight at the same time.
template <int D>
struct KeysShape {
  static constexpr int kGroups = 2, kThreads = kGroups * kWarpgroup;
  static constexpr int kOwn = kGroups * kGroupRows, kQueries = D == 64 ? 128 : 64, kParts = kQueries / 64;
  using Own = Panels<D, kOwn>;
  using Other = Panels<D, kQueries>;
  // k, v; two stages of (q, dO); two stages of the numbers of RowValues.
  static constexpr int kSharedBytes = 2 * Own::kBytes + 4 * Other::kBytes + 6 * kQueries * 4;
};
template <int D>
struct QueriesShape {
  static constexpr int kGroups = 1, kThreads = kGroups * kWarpgroup;
  static constexpr int kBlocks = D == 64 ? 4 : 2;  // of a multiprocessor, by registers
  static constexpr int kOwn = kGroups * kGroupRows, kKeys = 64;
  using Own = Panels<D, kOwn>;
  using Other = Panels<D, kKeys>;
  static constexpr int kSharedBytes = 2 * Own::kBytes + 4 * Other::kBytes;  // q, dO, two stages of (k, v)
};

// dk and dv. Scores are transposed (rows are keys, columns queries), so that the sums are the left operands
// of dv += p dO and dk += ds q.
template <int D>
__global__ void __launch_bounds__(KeysShape<D>::kThreads, 1)
    wgmma_dkv_kernel(const AttentionShape s, float scale, const Bf16* __restrict__ d_o,
                     const float* __restrict__ lse, const float* __restrict__ delta,
                     const Bf16* __restrict__ qkv, Bf16* __restrict__ dqkv) {
  using Shape = KeysShape<D>;
  using Own = typename Shape::Own;
  using Other = typename Shape::Other;
  constexpr int kQueries = Shape::kQueries, kParts = Shape::kParts, kThreads = Shape::kThreads;
  static_assert(kQueries <= kThreads);  // one thread per query of a tile loads lse and delta
  const Lane at;
  const int seq = static_cast<int>(s.seq), thread = static_cast<int>(threadIdx.x);
  unsigned char* k = panels_in_shared();
  unsigned char* v = k + Own::kBytes;
  unsigned char* stages = v + Own::kBytes;
  float* row_values = reinterpret_cast<float*>(stages + 4 * Other::kBytes);

  // Grid and order of the query heads: as in attention_mma_backward.cu.
  const unsigned group = s.heads / s.kv_heads, sequence = blockIdx.x / s.kv_heads,
                 first_head = blockIdx.x % s.kv_heads * group;
  const Mask mask{s, sequence};
  const int key0 = static_cast<int>(blockIdx.y) * Shape::kOwn,
            key_end = key0 + Shape::kOwn < seq ? key0 + Shape::kOwn : seq;
  const int stop = mask.end_query(key_end), row0 = warpgroup_index() * kGroupRows, mine = key0 + row0,
            mine_end = mine + kGroupRows;
  const HeadView<Bf16> first = head_view(s, qkv, sequence, first_head);  // k and v are shared by the group

  const PanelCopy<D, kQueries, kThreads> copy;
  auto copy_queries = [&](unsigned member, int query0, unsigned char* to) {
    const std::size_t head = static_cast<std::size_t>(member) * D;
    copy.start(to, first.q + head, first.ld, query0, seq);
    copy.start(to + Other::kBytes, d_o + first.o_at + head, first.o_ld, query0, seq);
    cp_async_commit();
  };
  // Rows behind the end of the sequence: as in attention_mma_backward.cu, all zero.
  struct RowValues {
    float lse2, delta;
    int first_key;
  };
  auto load_row_values = [&](unsigned member, int query0) -> RowValues {
    const int query = query0 + thread;
    if (thread >= kQueries || query >= seq) return {};
    const std::size_t at_row = first.lse_at + member + row_at(query, s.heads);
    return {lse[at_row] * kLog2e, delta[at_row], mask.first_key(query)};
  };
  auto store_row_values = [&](const RowValues& x, int stage) {
    float* to = row_values + stage * 3 * kQueries + thread;
    if (thread >= kQueries) return;
    to[0] = x.lse2, to[kQueries] = x.delta;
    reinterpret_cast<int*>(to)[2 * kQueries] = x.first_key;
  };

  const PanelCopy<D, Shape::kOwn, kThreads> copy_own;
  copy_own.start(k, first.k, first.ld, key0, seq);
  copy_own.start(v, first.v, first.ld, key0, seq);
  copy_queries(0, key0, stages);
  store_row_values(load_row_values(0, key0), 0);

  const PanelAddress keys = panel_address(k) + row0 * 128, values = keys + Own::kBytes;
  const int key[2] = {group_row(mine, 0), group_row(mine, 2)};  // the lane's rows
  WgmmaSums dk[D / 64] = {}, dv[D / 64] = {};
  const float to_log2 = scale * kLog2e;
  unsigned member = 0;
  int query0 = key0;
  // One tile of queries, and the start of the copies of the next one. The number of the stage is a
  // compile-time constant, so that addresses of operands are.
  auto step = [&](auto stage) {
    constexpr int kStage = decltype(stage)::value;
    unsigned next_member = member;
    int next_query0 = query0 + kQueries;
    if (next_query0 >= stop) next_query0 = key0, ++next_member;
    wait_for_copies();  // and all warpgroups have finished with the stage that is overwritten next
    RowValues next_values{};
    if (next_member < group) {
      copy_queries(next_member, next_query0, stages + 2 * (1 - kStage) * Other::kBytes);
      next_values = load_row_values(next_member, next_query0);
    }

    if (mine < seq && query0 + kQueries > mine && mask.reaches(query0, mine_end)) {
      const PanelAddress q = panel_address(stages + 2 * kStage * Other::kBytes), g = q + Other::kBytes;
      const float* of_rows = row_values + kStage * 3 * kQueries;
      // By 64 queries: scores, then weights; v dO, then gradient of the scores. All of these products are
      // started before the first one is waited for, so that the tensor cores compute while weights are.
      WgmmaSums p[kParts], ds[kParts];
      GroupOperand weights[kParts], gradients[kParts];
      constexpr int kInFlight = 2 * kParts - 1;  // groups that need not be complete when the next one is used
      wgmma_fence();
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        rows_times_rows<D, Shape::kOwn, kQueries>(p[part], keys, q + part * 64 * 128);
        wgmma_commit();
        rows_times_rows<D, Shape::kOwn, kQueries>(ds[part], values, g + part * 64 * 128);
        wgmma_commit();
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int part0 = query0 + 64 * part;
        const float* columns = of_rows + 64 * part + at.col(0);
        wgmma_wait<kInFlight>(p[part]);
        if (!mask.all_visible(part0, part0 + 64, mine, mine_end)) {
#pragma unroll
          for (int n = 0; n < 8; ++n) {
            const int2 firsts = *reinterpret_cast<const int2*>(columns + 2 * kQueries + 8 * n);
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if (key[i / 2] > part0 + 8 * n + at.col(i) || key[i / 2] < (i % 2 == 0 ? firsts.x : firsts.y))
                p[part][n][i] = -INFINITY;
          }
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float2 columns_lse = *reinterpret_cast<const float2*>(columns + 8 * n);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            p[part][n][i] =
                exp2_approx(fmaf(p[part][n][i], to_log2, i % 2 == 0 ? -columns_lse.x : -columns_lse.y));
        }
        weights[part].convert(p[part]);
        wgmma_fence();
        weights[part].template times_tile<D, kQueries>(dv, g + part * 64 * 128);
        wgmma_commit();
        wgmma_wait<kInFlight>(ds[part]);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float2 columns_delta = *reinterpret_cast<const float2*>(columns + kQueries + 8 * n);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            ds[part][n][i] =
                p[part][n][i] * (ds[part][n][i] - (i % 2 == 0 ? columns_delta.x : columns_delta.y));
        }
        gradients[part].convert(ds[part]);
        wgmma_fence();
        gradients[part].template times_tile<D, kQueries>(dk, q + part * 64 * 128);
        wgmma_commit();
      }
      wait_for<0>(dv);
      wait_for<0>(dk);
    }
    if (next_member < group) store_row_values(next_values, 1 - kStage);
    member = next_member, query0 = next_query0;
  };
  while (member < group) {
    step(std::integral_constant<int, 0>());
    if (member < group) step(std::integral_constant<int, 1>());
  }

  // The factor `scale` of the scores applies to dk and dq, not to dv. The tiles of k and v are overwritten;
  // a warp that reads them by wgmma is of the same warpgroup, whose products have been waited for.
  const float scales[2] = {scale, scale}, ones[2] = {1, 1};
  const int warp_row0 = row0 + warp_index() % 4 * 16;
  __syncthreads();
  store_panels<D, Shape::kOwn>(k, warp_row0, dk, scales, dqkv + (first.k - qkv), first.ld, key0, seq);
  store_panels<D, Shape::kOwn>(v, warp_row0, dv, ones, dqkv + (first.v - qkv), first.ld, key0, seq);
}

// dq, and delta for the other kernel.
template <int D>
__global__ void __launch_bounds__(QueriesShape<D>::kThreads, QueriesShape<D>::kBlocks)
    wgmma_dq_kernel(const AttentionShape s, float scale, const Bf16* __restrict__ d_o,
                    const Bf16* __restrict__ o, const float* __restrict__ lse, const Bf16* __restrict__ qkv,
                    float* __restrict__ delta, Bf16* __restrict__ dqkv) {
  using Shape = QueriesShape<D>;
  using Own = typename Shape::Own;
  using Other = typename Shape::Other;
  constexpr int kKeys = Shape::kKeys, kThreads = Shape::kThreads;
  const Lane at;
  const int seq = static_cast<int>(s.seq);
  unsigned char* q = panels_in_shared();
  unsigned char* g = q + Own::kBytes;
  unsigned char* stages = g + Own::kBytes;

  const HeadView<Bf16> view = head_view(s, qkv, blockIdx.x / s.heads, blockIdx.x % s.heads);
  const Mask mask{s, blockIdx.x / s.heads};
  const int query0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kOwn;
  const int stop = query0 + Shape::kOwn < seq ? query0 + Shape::kOwn : seq;
  const int row0 = warpgroup_index() * kGroupRows, mine = query0 + row0, mine_end = mine + kGroupRows;

  const PanelCopy<D, kKeys, kThreads> copy;
  auto copy_keys = [&](int key0, unsigned char* to) {
    copy.start(to, view.k, view.ld, key0, seq);
    copy.start(to + Other::kBytes, view.v, view.ld, key0, seq);
    cp_async_commit();
  };

  int key0 = mask.first_key(query0) / kKeys * kKeys;
  const PanelCopy<D, Shape::kOwn, kThreads> copy_own;
  copy_own.start(q, view.q, view.ld, query0, seq);
  copy_own.start(g, d_o + view.o_at, view.o_ld, query0, seq);
  copy_keys(key0, stages);

  // The lane's rows, and their first keys.
  const int query[2] = {group_row(mine, 0), group_row(mine, 2)};
  const int first[2] = {mask.first_key(query[0]), mask.first_key(query[1])},
            first_mine = mask.first_key(mine);
  float row_lse[2], deltas[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query[half] < seq ? query[half] : seq - 1;
    const std::size_t at_row = view.lse_at + row_at(row, s.heads), at_o = view.o_at + row_at(row, view.o_ld);
    row_lse[half] = lse[at_row] * kLog2e;
    deltas[half] = row_delta<Bf16, D>(d_o + at_o, o + at_o);
    if (query[half] < seq && at.lane % 4 == 0) delta[at_row] = deltas[half];
  }

  const PanelAddress queries = panel_address(q) + row0 * 128, gradients = queries + Own::kBytes;
  WgmmaSums dq[D / 64] = {};
  const float to_log2 = scale * kLog2e;
  auto step = [&](auto stage) {  // as in wgmma_dkv_kernel
    constexpr int kStage = decltype(stage)::value;
    wait_for_copies();
    if (key0 + kKeys < stop) copy_keys(key0 + kKeys, stages + 2 * (1 - kStage) * Other::kBytes);
    if (mine >= seq || key0 >= mine_end || key0 + kKeys <= first_mine)
      return;  // the whole tile is masked for this warpgroup
    const PanelAddress k = panel_address(stages + 2 * kStage * Other::kBytes), v = k + Other::kBytes;

    WgmmaSums p, ds;
    wgmma_fence();
    rows_times_rows<D, Shape::kOwn, kKeys>(p, queries, k);
    wgmma_commit();
    rows_times_rows<D, Shape::kOwn, kKeys>(ds, gradients, v);
    wgmma_commit();
    wgmma_wait<1>(p);
    if (!mask.all_visible(mine, mine_end, key0, key0 + kKeys)) {
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = key0 + 8 * n + at.col(i);
          if (key > query[i / 2] || key < first[i / 2]) p[n][i] = -INFINITY;
        }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[n][i] = exp2_approx(fmaf(p[n][i], to_log2, -row_lse[i / 2]));
    wgmma_wait<0>(ds);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) ds[n][i] = p[n][i] * (ds[n][i] - deltas[i / 2]);
    GroupOperand scores;
    scores.convert(ds);
    wgmma_fence();
    scores.template times_tile<D, kKeys>(dq, k);
    wgmma_commit();
    wait_for<0>(dq);
  };
  in_two_stages(key0, stop, kKeys, step);

  const float scales[2] = {scale, scale};
  __syncthreads();  // products of other warps may read q
  store_panels<D, Shape::kOwn>(q, row0 + warp_index() % 4 * 16, dq, scales, dqkv + (view.q - qkv), view.ld,
                               query0, seq);
}

template <int D>
cudaError_t run(cudaStream_t stream, const AttentionShape& s, const Bf16* d_o, const Bf16* o,
                const float* lse, const Bf16* qkv, float* delta, Bf16* dqkv) {
  using Keys = KeysShape<D>;
  using Queries = QueriesShape<D>;
  const float scale = 1.f / std::sqrt(static_cast<float>(D));
  const cudaError_t e =
      launch(wgmma_dq_kernel<D>, dim3(s.sequences * s.heads, tiles(s.seq, Queries::kOwn)),
             dim3(Queries::kThreads), Queries::kSharedBytes, stream, s, scale, d_o, o, lse, qkv, delta, dqkv);
  if (e != cudaSuccess) return e;
  return launch(wgmma_dkv_kernel<D>, dim3(s.sequences * s.kv_heads, tiles(s.seq, Keys::kOwn)),
                dim3(Keys::kThreads), Keys::kSharedBytes, stream, s, scale, d_o, lse,
                static_cast<const float*>(delta), qkv, dqkv);
}

}  // namespace

cudaError_t wgmma_backward(cudaStream_t stream, const AttentionShape& s, const Bf16* d_o, const Bf16* o,
                           const float* lse, const Bf16* qkv, float* delta, Bf16* dqkv) {
  return s.d == 64 ? run<64>(stream, s, d_o, o, lse, qkv, delta, dqkv)
                   : run<128>(stream, s, d_o, o, lse, qkv, delta, dqkv);
}

}  // namespace trainhost::cuda::attention_detail
