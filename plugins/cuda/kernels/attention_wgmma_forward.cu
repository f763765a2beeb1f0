// Attention for compute capability 9.0 in bf16, heads of 64 and 128 elements: the algorithm of
// attention_mma_forward.cu with products of warpgroups. A block has a tile of queries of one head, 64 per
// warpgroup, and iterates over tiles of keys in two stages. Compiled for sm_90a only.
#include <cmath>

#include "plugins/cuda/kernels/attention_wgmma.hpp"

namespace trainhost::cuda::attention_detail {
namespace {

template <int D>
struct ForwardShape {
  static constexpr int kGroups = 2, kThreads = kGroups * kWarpgroup;
  static constexpr int kBlocks = D == 64 ? 2 : 1;  // of a multiprocessor, by registers
  static constexpr int kQueries = kGroups * kGroupRows, kKeys = D == 64 ? 64 : 128, kN = kKeys / 64;
  using Queries = Panels<D, kQueries>;
  using Keys = Panels<D, kKeys>;
  static constexpr int kSharedBytes = Queries::kBytes + 4 * Keys::kBytes;  // q, then two stages of (k, v)
};

template <int D>
__global__ void __launch_bounds__(ForwardShape<D>::kThreads, ForwardShape<D>::kBlocks)
    wgmma_forward_kernel(const AttentionShape s, float scale, const Bf16* __restrict__ qkv,
                         Bf16* __restrict__ o, float* __restrict__ lse) {
  using Shape = ForwardShape<D>;
  using Keys = typename Shape::Keys;
  constexpr int kKeys = Shape::kKeys, kN = Shape::kN, kThreads = Shape::kThreads;
  const Lane at;
  const int seq = static_cast<int>(s.seq);
  unsigned char* q = panels_in_shared();
  unsigned char* stages = q + Shape::Queries::kBytes;

  // Grid: as in attention_mma_forward.cu.
  const HeadView<Bf16> view = head_view(s, qkv, blockIdx.x / s.heads, blockIdx.x % s.heads);
  const Mask mask{s, blockIdx.x / s.heads};
  const int query0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kQueries;
  const int stop = query0 + Shape::kQueries < seq ? query0 + Shape::kQueries : seq;
  const int row0 = warpgroup_index() * kGroupRows, mine = query0 + row0, mine_end = mine + kGroupRows;
  const int query[2] = {group_row(mine, 0), group_row(mine, 2)};  // the lane's rows, and their first keys
  const int first[2] = {mask.first_key(query[0]), mask.first_key(query[1])},
            first_mine = mask.first_key(mine);

  const PanelCopy<D, kKeys, kThreads> copy;
  auto copy_keys = [&](int key0, unsigned char* to) {
    copy.start(to, view.k, view.ld, key0, seq);
    copy.start(to + Keys::kBytes, view.v, view.ld, key0, seq);
    cp_async_commit();
  };

  int key0 = mask.first_key(query0) / kKeys * kKeys;
  PanelCopy<D, Shape::kQueries, kThreads>().start(q, view.q, view.ld, query0, seq);
  copy_keys(key0, stages);
  const PanelAddress queries = panel_address(q) + row0 * 128;

  // As in attention_mma_forward.cu: a lane has two rows, and the sum of the weights of its columns.
  WgmmaSums sum[D / 64] = {};
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {};
  const float to_log2 = scale * kLog2e;

  // One tile of keys, and the start of the copies of the next one.
  auto step = [&](auto stage) {
    unsigned char* k = stages + 2 * decltype(stage)::value * Keys::kBytes;
    wait_for_copies();  // and all warpgroups have finished with the stage that is overwritten next
    if (key0 + kKeys < stop)
      copy_keys(key0 + kKeys, stages + 2 * (1 - decltype(stage)::value) * Keys::kBytes);
    if (mine >= seq || key0 >= mine_end || key0 + kKeys <= first_mine)
      return;  // the whole tile is masked for this warpgroup
    const PanelAddress keys = panel_address(k), values = keys + Keys::kBytes;

    WgmmaSums score[kN];
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < kN; ++part)
      rows_times_rows<D, Shape::kQueries, kKeys>(score[part], queries, keys + part * 64 * 128);
    wgmma_commit();
    wait_for<0>(score);
    if (!mask.all_visible(mine, mine_end, key0, key0 + kKeys)) {
#pragma unroll
      for (int part = 0; part < kN; ++part)
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = key0 + 64 * part + 8 * n + at.col(i);
            if (key > query[i / 2] || key < first[i / 2]) score[part][n][i] = -INFINITY;
          }
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = top[half];
#pragma unroll
      for (int part = 0; part < kN; ++part)
#pragma unroll
        for (int n = 0; n < 8; ++n)
          high = fmaxf(high, fmaxf(score[part][n][2 * half], score[part][n][2 * half + 1]));
      high = fmaxf(high, __shfl_xor_sync(kFullWarp, high, 1));
      high = fmaxf(high, __shfl_xor_sync(kFullWarp, high, 2));
      const float shift = high == -INFINITY ? 0.f : high * to_log2;
      const float shrink = exp2_approx(fmaf(top[half], to_log2, -shift));
      top[half] = high;
      total[half] *= shrink;
#pragma unroll
      for (int part = 0; part < kN; ++part)
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            score[part][n][i] = exp2_approx(fmaf(score[part][n][i], to_log2, -shift));
            total[half] += score[part][n][i];
          }
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel)
#pragma unroll
        for (int n = 0; n < 8; ++n) sum[panel][n][2 * half] *= shrink, sum[panel][n][2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int part = 0; part < kN; ++part) {
      GroupOperand weights;
      weights.convert(score[part]);
      wgmma_fence();
      weights.template times_tile<D, kKeys>(sum, values + part * 64 * 128);
      wgmma_commit();
      wait_for<0>(sum);
    }
  };
  in_two_stages(key0, stop, kKeys, step);
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float all = total[half];
    all += __shfl_xor_sync(kFullWarp, all, 1);
    all += __shfl_xor_sync(kFullWarp, all, 2);
    inverse[half] = 1.f / all;
    if (query[half] < seq && at.lane % 4 == 0)
      lse[view.lse_at + row_at(query[half], s.heads)] = top[half] * scale + logf(all);
  }
  __syncthreads();  // products of other warps may read q
  store_panels<D, Shape::kQueries>(q, row0 + warp_index() % 4 * 16, sum, inverse, o + view.o_at, view.o_ld,
                                   query0, seq);
}

template <int D>
cudaError_t run(cudaStream_t stream, const AttentionShape& s, const Bf16* qkv, Bf16* o, float* lse) {
  using Shape = ForwardShape<D>;
  return launch(wgmma_forward_kernel<D>, dim3(s.sequences * s.heads, tiles(s.seq, Shape::kQueries)),
                dim3(Shape::kThreads), Shape::kSharedBytes, stream, s, 1.f / std::sqrt(static_cast<float>(D)),
                qkv, o, lse);
}

}  // namespace

cudaError_t wgmma_forward(cudaStream_t stream, const AttentionShape& s, const Bf16* qkv, Bf16* o,
                          float* lse) {
  return s.d == 64 ? run<64>(stream, s, qkv, o, lse) : run<128>(stream, s, qkv, o, lse);
}

}  // namespace trainhost::cuda::attention_detail
