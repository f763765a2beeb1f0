// Causal attention by tiles with an online softmax (Dao et al. 2022, FlashAttention, algorithms 1 and 4).
// Only one tile of scores exists at a time; the backward pass recomputes it. A row of qkv is q heads | k
// heads | v heads, D floats each; a group of A/K query heads shares one key/value head. Keys are the outer
// loop, so that a tile of keys and values is packed once for all queries that attend to it. Kernels:
// kernels/rows_attention.hpp, kernels/small_product.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

/// Shape of an attention operation and of its tiles.
struct Shape {
  std::uint32_t seq, tile_q, tile_k, d, heads, kv_heads, window;
  std::uint64_t ld;  // floats between rows of qkv
  std::uint32_t
      ld_scores;  // between rows of a score tile; not a multiple of 512 bytes, to avoid equal cache sets
  float scale;
  const std::int32_t* starts;  // of one sequence, by query: the first key of its document; null: one document
  std::uint32_t group() const { return heads / kv_heads; }
  // First key of the first tile that the query at q0, or any later one, attends to. Tiles before it are
  // skipped: a document costs as much as in a sequence of its own, apart from the ends of tiles.
  std::uint32_t first_key(std::uint32_t q0) const {
    std::uint32_t first = window && q0 + 1 > window ? q0 + 1 - window : 0;
    if (starts) first = std::max(first, static_cast<std::uint32_t>(starts[q0]));
    return first / tile_k * tile_k;
  }
  Shape of_sequence(const std::int32_t* all_starts, std::uint64_t row0) const {
    Shape s = *this;
    s.starts = all_starts ? all_starts + row0 : nullptr;
    return s;
  }
};

Shape shape(const OpContext& ctx, const step::Op& op) {
  const ModelSpec& m = ctx.model();
  const TrainerTraits& p = ctx.program.traits;
  Shape s{};
  s.seq = ctx.program.run.seq_len;
  s.tile_q = std::min(p.attention_tile_q, s.seq);
  s.tile_k = std::min(p.attention_tile_k, s.seq);
  s.d = m.head_dim, s.heads = m.heads, s.kv_heads = m.kv_heads;
  s.window = m.window(static_cast<std::uint32_t>(op.layer));
  s.ld = m.qkv_width();
  // The planned scratch has D + 2 floats per query besides two tiles of scores: enough for the longer rows.
  s.ld_scores = p.attention_tile_k + (p.attention_tile_k % 128 == 0 && m.head_dim >= 30 ? 16 : 0);
  s.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(m.head_dim)));
  return s;
}

// Memory of one thread: the tiles of scores are in the operation's scratch, the rest in the thread's
// workspace.
struct ThreadBuffers {
  float *scores, *dscores;
  float* work;  // of Kernels::product
  float *keys_t, *values_t, *keys,
      *values;         // packed tiles; keys and values share memory: one is needed at a time
  float *top, *total;  // running maximum and sum of each query of a block
  float* delta;        // dot(o, d o) of each query of each head of a group
};
ThreadBuffers thread_buffers(OpContext& ctx, const Shape& s, step::BufferId scratch, std::uint32_t worker) {
  ThreadBuffers d{};
  d.scores = ctx.f32(scratch) +
             worker * (ctx.buffer(scratch).rows * ctx.buffer(scratch).cols / ctx.program.traits.threads);
  d.dscores = d.scores + std::uint64_t{s.tile_q} * s.ld_scores;
  d.work = ctx.worker_workspace(worker);
  const std::uint64_t tile = packed_tile_floats(ctx.program.traits, s.d);
  d.keys_t = d.work + kProductWork;
  d.values_t = d.keys_t + tile;
  d.keys = d.values = d.values_t + tile;
  d.top = d.keys + tile;
  d.total = d.top + kQueryBlock;
  d.delta = d.total + kQueryBlock;
  return d;
}

// Queries [q0, q0 + rows) and keys [k0, k0 + cols).
struct Tile {
  std::uint32_t q0, rows, k0, cols;
  bool first;  // the first tile of keys for these queries
};
// Calls f for every tile of queries in [q_begin, q_end) that attends to the key tile at k0, in order.
template <class F>
void over_queries(const Shape& s, std::uint32_t q_begin, std::uint32_t q_end, std::uint32_t k0, F&& f) {
  std::uint32_t q0 = k0 <= q_begin ? q_begin : q_begin + (k0 - q_begin) / s.tile_q * s.tile_q;
  for (; q0 < q_end && s.first_key(q0) <= k0; q0 += s.tile_q) {
    const std::uint32_t rows = std::min(s.tile_q, q_end - q0);
    f(Tile{q0, rows, k0, std::min({s.tile_k, s.seq - k0, q0 + rows - k0}), s.first_key(q0) == k0});
  }
}

AttentionTile mask(const Shape& s, const Tile& t) {
  return {t.rows, t.cols, s.ld_scores, t.q0, t.k0, s.window, s.scale, s.starts ? s.starts + t.q0 : nullptr};
}

// Attention of the queries [q_begin, q_end) of one head. q, k, v, o and lse point at the head's elements in
// the first row of the sequence. o is accumulated unnormalised and rescaled when a row's maximum grows;
// softmax_finish() normalises it.
void forward_block(const Kernels& kernels, const Shape& s, const ThreadBuffers& d, const float* q,
                   const float* k, const float* v, std::uint32_t q_begin, std::uint32_t q_end, float* o,
                   std::uint64_t ldo, float* lse) {
  const std::uint64_t value_width = kernels.panel_width(s.d);
  for (std::uint32_t k0 = s.first_key(q_begin); k0 < q_end; k0 += s.tile_k) {
    const std::uint32_t cols = std::min({s.tile_k, s.seq - k0, q_end - k0});
    const std::uint64_t key_width = kernels.panel_width(cols);
    kernels.pack_transposed(cols, s.d, k + k0 * s.ld, s.ld, key_width, d.keys_t);
    kernels.pack(s.d, cols, v + k0 * s.ld, s.ld, value_width, d.values);
    over_queries(s, q_begin, q_end, k0, [&](const Tile& t) {
      float *top = d.top + (t.q0 - q_begin), *total = d.total + (t.q0 - q_begin), *to = o + t.q0 * ldo;
      kernels.product_packed(t.rows, t.cols, s.d, q + t.q0 * s.ld, s.ld, d.keys_t, s.d, key_width, false,
                             d.scores, s.ld_scores);
      kernels.softmax_tile(mask(s, t), d.scores, top, total, t.first, to, ldo, s.d);
      kernels.product_packed(t.rows, s.d, t.cols, d.scores, s.ld_scores, d.values, cols, value_width,
                             !t.first, to, ldo);
    });
  }
  kernels.softmax_finish(q_end - q_begin, s.d, o + q_begin * ldo, ldo, d.top, d.total,
                         lse + std::uint64_t{q_begin} * s.heads, s.heads);
}

// Addresses of the first row of a sequence for one query head and its key/value head.
struct Rows {
  const float *q, *k, *v, *o, *d_o, *lse;
  float *dq, *dk, *dv;
};
// Adds the contribution of one tile to dq, dk and dv: p and ds from q, k, lse and delta; dv += p^T dO, dk +=
// ds^T q, dq += ds k. dq is overwritten by the first tile of keys of each query.
void backward_tile(const Kernels& kernels, const Shape& s, const ThreadBuffers& d, const Rows& r,
                   const Tile& t, std::uint32_t cols, const float* delta, std::uint64_t ldo) {
  const std::uint64_t key_width = kernels.panel_width(cols), q = t.q0 * s.ld, o = t.q0 * ldo, k = t.k0 * s.ld;
  kernels.product_packed(t.rows, t.cols, s.d, r.q + q, s.ld, d.keys_t, s.d, key_width, false, d.scores,
                         s.ld_scores);
  kernels.product_packed(t.rows, t.cols, s.d, r.d_o + o, ldo, d.values_t, s.d, key_width, false, d.dscores,
                         s.ld_scores);
  kernels.softmax_bwd_tile(mask(s, t), d.scores, d.dscores, r.lse + std::uint64_t{t.q0} * s.heads, s.heads,
                           delta + t.q0);
  kernels.product(t.cols, s.d, t.rows, d.scores, s.ld_scores, true, r.d_o + o, ldo, true, r.dv + k, s.ld,
                  d.work);
  kernels.product(t.cols, s.d, t.rows, d.dscores, s.ld_scores, true, r.q + q, s.ld, true, r.dk + k, s.ld,
                  d.work);
  kernels.product_packed(t.rows, s.d, t.cols, d.dscores, s.ld_scores, d.keys, cols, kernels.panel_width(s.d),
                         !t.first, r.dq + q, s.ld);
}

void clear_rows(float* to, std::uint64_t rows, std::uint64_t n, std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r) std::memset(to + r * ld, 0, n * sizeof(float));
}

}  // namespace

// Task: a block of queries of one head of one sequence.
void run_attention(OpContext& ctx, const step::Op& op) {
  const Shape s = shape(ctx, op);
  const float* qkv = ctx.f32(op[attention::kQkv]);
  float *o = ctx.f32(op[attention::kO]), *lse = ctx.f32(op[attention::kLse]);
  const std::uint64_t sequences = ctx.step.rows / s.seq, ldo = std::uint64_t{s.heads} * s.d;
  const std::uint32_t block = query_block(ctx.program.traits), blocks = (s.seq + block - 1) / block;
  ctx.pool.run(
      static_cast<std::uint32_t>(sequences * s.heads * blocks), [&](std::uint32_t i, std::uint32_t worker) {
        const std::uint32_t q_begin = i % blocks * block, head = i / blocks % s.heads;
        const std::uint64_t row0 = std::uint64_t{i / blocks / s.heads} * s.seq, kv = head / s.group();
        const float* base = qkv + row0 * s.ld;
        forward_block(ctx.kernels, s.of_sequence(ctx.step.starts, row0),
                      thread_buffers(ctx, s, op[attention::kScratch], worker), base + head * s.d,
                      base + (s.heads + kv) * s.d, base + (s.heads + s.kv_heads + kv) * s.d, q_begin,
                      std::min(q_begin + block, s.seq), o + row0 * ldo + head * s.d, ldo,
                      lse + row0 * s.heads + head);
      });
}

// Task: one key/value head of one sequence with all query heads that share it, in order, so that dk and dv
// have one writer.
void run_attention_bwd(OpContext& ctx, const step::Op& op) {
  const Shape all = shape(ctx, op);
  const float *d_o = ctx.f32(op[attention_bwd::kDO]), *o = ctx.f32(op[attention_bwd::kO]),
              *lse = ctx.f32(op[attention_bwd::kLse]), *qkv = ctx.f32(op[attention_bwd::kQkv]);
  float* dqkv = ctx.f32(op[attention_bwd::kDQkv]);
  const std::uint64_t sequences = ctx.step.rows / all.seq, ldo = std::uint64_t{all.heads} * all.d;
  ctx.pool.run(
      static_cast<std::uint32_t>(sequences * all.kv_heads), [&](std::uint32_t i, std::uint32_t worker) {
        const std::uint64_t row0 = std::uint64_t{i / all.kv_heads} * all.seq, kv = i % all.kv_heads;
        const Shape s = all.of_sequence(ctx.step.starts, row0);
        const std::uint64_t at_k = row0 * s.ld + (s.heads + kv) * s.d,
                            at_v = at_k + std::uint64_t{s.kv_heads} * s.d;
        const ThreadBuffers d = thread_buffers(ctx, s, op[attention_bwd::kScratch], worker);
        auto rows = [&](std::uint32_t member) {
          const std::uint64_t head = kv * s.group() + member, at_q = row0 * s.ld + head * s.d,
                              at_o = row0 * ldo + head * s.d;
          return Rows{qkv + at_q,  qkv + at_k,  qkv + at_v, o + at_o, d_o + at_o, lse + row0 * s.heads + head,
                      dqkv + at_q, dqkv + at_k, dqkv + at_v};
        };
        for (std::uint32_t h = 0; h < s.group(); ++h)
          ctx.kernels.row_dots(s.seq, s.d, rows(h).d_o, ldo, rows(h).o, ldo, d.delta + h * s.seq);
        for (std::uint32_t k0 = 0; k0 < s.seq; k0 += s.tile_k) {
          const std::uint32_t cols = std::min(s.tile_k, s.seq - k0);
          const std::uint64_t width = ctx.kernels.panel_width(cols);
          const float *k = qkv + at_k + k0 * s.ld, *v = qkv + at_v + k0 * s.ld;
          ctx.kernels.pack_transposed(cols, s.d, k, s.ld, width, d.keys_t);
          ctx.kernels.pack_transposed(cols, s.d, v, s.ld, width, d.values_t);
          ctx.kernels.pack(s.d, cols, k, s.ld, ctx.kernels.panel_width(s.d), d.keys);
          clear_rows(dqkv + at_k + k0 * s.ld, cols, s.d, s.ld);
          clear_rows(dqkv + at_v + k0 * s.ld, cols, s.d, s.ld);
          for (std::uint32_t h = 0; h < s.group(); ++h)
            over_queries(s, 0, s.seq, k0, [&](const Tile& t) {
              backward_tile(ctx.kernels, s, d, rows(h), t, cols, d.delta + h * s.seq, ldo);
            });
        }
      });
}

// One token at position p: appends its key and value to the caches, then each head attends to the cached
// keys.
void run_attention_step(OpContext& ctx, const step::Op& op) {
  const Shape s = shape(ctx, op);
  const std::uint64_t p = ctx.step.position, kv_width = std::uint64_t{s.kv_heads} * s.d;
  const std::uint64_t first = s.window && p + 1 > s.window ? p + 1 - s.window : 0, count = p + 1 - first;
  const float* qkv = ctx.f32(op[attention_step::kQkv]);
  float *keys = ctx.f32(op[attention_step::kCacheK]), *values = ctx.f32(op[attention_step::kCacheV]),
        *scratch = ctx.f32(op[attention_step::kScratch]), *o = ctx.f32(op[attention_step::kO]);
  std::memcpy(keys + p * kv_width, qkv + std::uint64_t{s.heads} * s.d, kv_width * sizeof(float));
  std::memcpy(values + p * kv_width, qkv + std::uint64_t{s.heads} * s.d + kv_width, kv_width * sizeof(float));
  for (std::uint32_t head = 0; head < s.heads; ++head) {
    const std::uint64_t at = std::uint64_t{head / (s.heads / s.kv_heads)} * s.d;
    float *scores = scratch + head * s.seq, top, total, lse;
    ctx.kernels.row_dots(static_cast<std::uint32_t>(count), s.d, keys + first * kv_width + at, kv_width,
                         qkv + head * s.d, 0, scores);
    const AttentionTile all = {1,
                               static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(p),
                               static_cast<std::uint32_t>(first),
                               0,
                               s.scale};
    ctx.kernels.softmax_tile(all, scores, &top, &total, true, o + head * s.d, s.d, s.d);
    ctx.kernels.product(1, s.d, count, scores, count, false, values + first * kv_width + at, kv_width, false,
                        o + head * s.d, s.d, ctx.worker_workspace(0));
    ctx.kernels.softmax_finish(1, s.d, o + head * s.d, s.d, &top, &total, &lse, 1);
  }
}

}  // namespace trainhost::cpu
