// Gradients of attention (Dao et al. 2022, FlashAttention, algorithm 4): the scores of a tile are computed
// again. Queries are processed a segment at a time, whose queries, gradients of outputs and gradients of
// queries have compact copies; within a segment keys are the outer loop. Tiles and memory:
// attention_tiles.hpp.
#include "core/step/operands.hpp"
#include "plugins/cpu/engine/attention_tiles.hpp"
#include "plugins/cpu/engine/bf16_attention.hpp"

namespace trainhost::cpu {

using namespace step::operand;
using namespace attention_tiles;

namespace {

// Addresses of the first row of a sequence for one query head.
template <class T>
struct QueryRows {
  const T *q, *d_o, *o;
  const float* lse;
  T* dq;
};

// One key/value head of one sequence with all query heads that share it, in order, so that dk and dv have one
// writer. If gradients are stored in bf16, all queries are one segment: sums of dk and dv stay in f32.
template <class T>
class BackwardTask {
 public:
  BackwardTask(OpContext& ctx, const step::Op& op, const Shape& shape, std::uint64_t row0, std::uint64_t kv,
               std::uint32_t worker)
      : kernels_(ctx.kernels),
        rows_(ctx.rows<T>()),
        s_(shape),
        d_(thread_buffers(ctx, s_, op[attention_bwd::kScratch], worker)),
        ldo_(std::uint64_t{s_.heads} * s_.d) {
    const T *qkv = ctx.at<T>(op[attention_bwd::kQkv]) + row0 * s_.ld,
            *d_o = ctx.at<T>(op[attention_bwd::kDO]) + row0 * ldo_,
            *o = ctx.at<T>(op[attention_bwd::kO]) + row0 * ldo_;
    T* dqkv = ctx.at<T>(op[attention_bwd::kDQkv]) + row0 * s_.ld;
    const std::uint64_t head = kv * s_.group(), at_k = (s_.heads + kv) * s_.d,
                        at_v = at_k + std::uint64_t{s_.kv_heads} * s_.d;
    first_ = {qkv + head * s_.d, d_o + head * s_.d, o + head * s_.d,
              ctx.f32(op[attention_bwd::kLse]) + row0 * s_.heads + head, dqkv + head * s_.d};
    k_ = qkv + at_k, v_ = qkv + at_v, dk_stored_ = dqkv + at_k, dv_stored_ = dqkv + at_v;
    divide_memory(segment_queries(ctx.program.traits, s_.group(), s_.seq, s_.d));
  }

  void run() {
    for (std::uint32_t h = 0; h < s_.group(); ++h) {
      const QueryRows<T> r = member(h);
      rows_.row_dots(s_.seq, s_.d, r.d_o, ldo_, r.o, ldo_, d_.delta + std::uint64_t{h} * s_.seq);
    }
    for (std::uint32_t begin = 0; begin < s_.seq; begin += segment_)
      run_segment(begin, std::min(begin + segment_, s_.seq));
  }

 private:
  // Compact rows: dk and dv of the tile of keys; dq, then queries and gradients of outputs of the segment, of
  // one member of the group after the other. Stored in bf16: keys or values of a tile first; and if not all
  // queries have a place, there is one tile of them, which is copied for every tile of keys.
  void divide_memory(std::uint32_t segment) {
    segment_ = std::is_same_v<T, float> ? segment : s_.seq;
    const std::uint64_t queries = std::uint64_t{s_.group()} * segment_;
    std::uint64_t row = std::is_same_v<T, float> ? 0 : s_.tile_k;
    const auto take = [&](std::uint64_t rows) { return d_.row((row += rows) - rows); };
    copy_ = d_.row(0), dk_ = take(s_.tile_k), dv_ = take(s_.tile_k), dq_ = take(queries);
    copied_once_ = row + 2 * queries <= d_.compact_rows;
    q_ = take(copied_once_ ? queries : s_.tile_q), d_o_ = take(copied_once_ ? queries : s_.tile_q);
    assert(row <= d_.compact_rows);
  }

  QueryRows<T> member(std::uint32_t h) const {
    const std::uint64_t at = std::uint64_t{h} * s_.d;
    return {first_.q + at, first_.d_o + at, first_.o + at, first_.lse + h, first_.dq + at};
  }
  // The compact row of a query of the segment from `begin` on.
  std::uint64_t compact_row(std::uint32_t h, std::uint32_t q, std::uint32_t begin) const {
    return (std::uint64_t{h} * segment_ + q - begin) * d_.ld;
  }

  void run_segment(std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t k0 = s_.first_key(begin); k0 < end; k0 += s_.tile_k) {
      const std::uint32_t cols = std::min(s_.tile_k, s_.seq - k0);
      pack_keys(k0, cols);
      start_sums(k0, cols, k0 >= begin);
      RowsFetch<false, T> next(k_, v_, s_, k0 + cols, std::min(end, k0 + cols + s_.tile_k));
      RowsFetch<true, T> stored(dk_stored_, dv_stored_, s_, k0, k0 + cols);
      for (std::uint32_t h = 0; h < s_.group(); ++h)
        over_queries(s_, begin, end, k0, [&](const Tile& t) {
          next.fetch_part();
          stored.fetch_part();
          add_tile(t, cols, h, begin);
        });
      store_rows(kernels_, dk_, cols, s_.d, dk_stored_ + k0 * s_.ld, s_.ld);
      store_rows(kernels_, dv_, cols, s_.d, dv_stored_ + k0 * s_.ld, s_.ld);
    }
    for (std::uint32_t h = 0; h < s_.group(); ++h)
      store_rows(kernels_, dq_ + compact_row(h, begin, begin), end - begin, s_.d,
                 member(h).dq + begin * s_.ld, s_.ld);
  }

  void pack_keys(std::uint32_t k0, std::uint32_t cols) {
    const std::uint64_t width = kernels_.panel_width(cols);
    const RowsF32 v = as_f32(kernels_, v_ + k0 * s_.ld, cols, s_.d, s_.ld, copy_);
    kernels_.pack_transposed(cols, s_.d, v.at, v.ld, width, d_.values_t);
    const RowsF32 k = as_f32(kernels_, k_ + k0 * s_.ld, cols, s_.d, s_.ld, copy_);
    kernels_.pack_transposed(cols, s_.d, k.at, k.ld, width, d_.keys_t);
    kernels_.pack(s_.d, cols, k.at, k.ld, kernels_.panel_width(s_.d), d_.keys);
  }

  // dk and dv of a tile: 0, or the sums of the segments before. Key k0 is attended to by query k0, so its
  // first segment is that of this query.
  void start_sums(std::uint32_t k0, std::uint32_t cols, bool first) {
    if (first) {
      std::memset(dk_, 0, cols * d_.ld * sizeof(float));
      std::memset(dv_, 0, cols * d_.ld * sizeof(float));
    } else {
      copy_rows(kernels_, dk_stored_ + k0 * s_.ld, cols, s_.d, s_.ld, dk_);
      copy_rows(kernels_, dv_stored_ + k0 * s_.ld, cols, s_.d, s_.ld, dv_);
    }
  }

  // Adds the contribution of one tile to dq, dk and dv: p and ds from q, k, lse and delta; dv += p^T dO, dk
  // += ds^T q, dq += ds k. dq is overwritten by the first tile of keys of each query.
  void add_tile(const Tile& t, std::uint32_t cols, std::uint32_t h, std::uint32_t begin) {
    const QueryRows<T> r = member(h);
    const std::uint64_t key_width = kernels_.panel_width(cols), width = kernels_.panel_width(s_.d),
                        ld = d_.ld, at = compact_row(h, t.q0, begin), of_copy = copied_once_ ? at : 0;
    float *const q = q_ + of_copy, *const d_o = d_o_ + of_copy, *const dq = dq_ + at;
    if (t.first || !copied_once_) {
      copy_rows(kernels_, r.q + t.q0 * s_.ld, t.rows, s_.d, s_.ld, q);
      copy_rows(kernels_, r.d_o + t.q0 * ldo_, t.rows, s_.d, ldo_, d_o);
    }
    if (t.last) fetch_rows<true>(r.dq + t.q0 * s_.ld, t.rows, s_.d, s_.ld);
    kernels_.product_packed(t.rows, t.cols, s_.d, q, ld, d_.keys_t, s_.d, key_width, false, d_.scores,
                            s_.ld_scores);
    kernels_.product_packed(t.rows, t.cols, s_.d, d_o, ld, d_.values_t, s_.d, key_width, false, d_.dscores,
                            s_.ld_scores);
    kernels_.softmax_bwd_tile(mask(s_, t), d_.scores, d_.dscores, r.lse + std::uint64_t{t.q0} * s_.heads,
                              s_.heads, d_.delta + std::uint64_t{h} * s_.seq + t.q0);
    kernels_.product(t.cols, s_.d, t.rows, d_.scores, s_.ld_scores, true, d_o, ld, true, dv_, ld, d_.work);
    kernels_.product(t.cols, s_.d, t.rows, d_.dscores, s_.ld_scores, true, q, ld, true, dk_, ld, d_.work);
    kernels_.product_packed(t.rows, s_.d, t.cols, d_.dscores, s_.ld_scores, d_.keys, cols, width, !t.first,
                            dq, ld);
  }

  const Kernels& kernels_;
  const RowKernels<T>& rows_;
  const Shape s_;
  const ThreadBuffers d_;
  const std::uint64_t ldo_;  // elements between rows of outputs
  QueryRows<T> first_{};     // of the first query head of the group
  const T *k_, *v_;
  T *dk_stored_, *dv_stored_;
  std::uint32_t segment_ = 0;  // queries
  float *copy_, *dk_, *dv_, *dq_, *q_, *d_o_;
  bool copied_once_ = false;
};

template <class T>
void attention_backward(OpContext& ctx, const step::Op& op) {
  const Shape s = shape(ctx, op);
  const std::uint64_t sequences = ctx.step.rows / s.seq;
  ctx.pool.run(
      static_cast<std::uint32_t>(sequences * s.kv_heads), [&](std::uint32_t i, std::uint32_t worker) {
        const std::uint64_t row0 = std::uint64_t{i / s.kv_heads} * s.seq;
        BackwardTask<T>(ctx, op, s.of_sequence(ctx.step.starts, row0), row0, i % s.kv_heads, worker).run();
      });
}

}  // namespace

void run_attention_bwd(OpContext& ctx, const step::Op& op) {
  if (computes_attention_in_bf16(ctx, op)) return bf16_attention_bwd(ctx, op);
  ctx.by_storage([&](auto stored) { attention_backward<decltype(stored)>(ctx, op); });
}

}  // namespace trainhost::cpu
