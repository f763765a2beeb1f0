// Causal attention by tiles with an online softmax (Dao et al. 2022, FlashAttention, algorithms 1 and 4).
// Only one tile of scores exists at a time; the backward pass recomputes it. A row of qkv is q heads | k
// heads | v heads, D floats each; a group of A/K query heads shares one key/value head. Keys are the outer
// loop, so that a tile of keys and values is packed once for all queries that attend to it. Kernels:
// kernels/rows_attention.hpp, kernels/small_product.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/bf16_attention.hpp"
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
  // Of tensors in bf16: rows in f32, widened_ld() floats apart (workspace.hpp).
  float* widened;
  std::uint64_t ld_widened;
  float* widened_row(std::uint64_t row) const { return widened + row * ld_widened; }
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
  d.widened = d.delta + (std::uint64_t{s.group()} * s.seq + 15) / 16 * 16;
  d.ld_widened = widened_ld(s.d);
  return d;
}

// Rows of d elements in f32: those of a tensor that is stored in f32, or a widened copy.
const float* as_f32(const Kernels&, const float* from, std::uint64_t, std::uint64_t, std::uint64_t, float*) {
  return from;
}
const float* as_f32(const Kernels& kernels, const Bf16* from, std::uint64_t rows, std::uint64_t d,
                    std::uint64_t ld, float* copy) {
  for (std::uint64_t r = 0; r < rows; ++r) kernels.widen(d, from + r * ld, copy + r * widened_ld(d));
  return copy;
}
// Where rows of a tensor are computed in f32: in place, or in memory from which store_rows() stores them.
float* in_f32(float* tensor, float*) { return tensor; }
float* in_f32(Bf16*, float* copy) { return copy; }
void store_rows(const Kernels&, const float*, std::uint64_t, std::uint64_t, float*, std::uint64_t) {}
void store_rows(const Kernels& kernels, const float* from, std::uint64_t rows, std::uint64_t d, Bf16* to,
                std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r) kernels.narrow(d, from + r * widened_ld(d), to + r * ld);
}
// Floats between rows of which as_f32() or in_f32() gives the address.
template <class T>
std::uint64_t ld_f32(std::uint64_t ld, const ThreadBuffers& d) {
  return std::is_same_v<T, float> ? ld : d.ld_widened;
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
template <class T>
void forward_block(const Kernels& kernels, const Shape& s, const ThreadBuffers& d, const T* q, const T* k,
                   const T* v, std::uint32_t q_begin, std::uint32_t q_end, T* o, std::uint64_t ldo,
                   float* lse) {
  const std::uint64_t value_width = kernels.panel_width(s.d), ld = ld_f32<T>(s.ld, d),
                      ld_out = ld_f32<T>(ldo, d);
  const std::uint32_t queries = q_end - q_begin;
  const float* q32 = as_f32(kernels, q + q_begin * s.ld, queries, s.d, s.ld, d.widened);
  float *const o32 = in_f32(o + q_begin * ldo, d.widened_row(kQueryBlock)), *const copy = d.widened_row(
                                                                                2 * kQueryBlock);
  for (std::uint32_t k0 = s.first_key(q_begin); k0 < q_end; k0 += s.tile_k) {
    const std::uint32_t cols = std::min({s.tile_k, s.seq - k0, q_end - k0});
    const std::uint64_t key_width = kernels.panel_width(cols);
    const float* k32 = as_f32(kernels, k + k0 * s.ld, cols, s.d, s.ld, copy);
    kernels.pack_transposed(cols, s.d, k32, ld, key_width, d.keys_t);
    const float* v32 = as_f32(kernels, v + k0 * s.ld, cols, s.d, s.ld, copy);
    kernels.pack(s.d, cols, v32, ld, value_width, d.values);
    over_queries(s, q_begin, q_end, k0, [&](const Tile& t) {
      const std::uint32_t row = t.q0 - q_begin;
      float *top = d.top + row, *total = d.total + row, *to = o32 + row * ld_out;
      kernels.product_packed(t.rows, t.cols, s.d, q32 + row * ld, ld, d.keys_t, s.d, key_width, false,
                             d.scores, s.ld_scores);
      kernels.softmax_tile(mask(s, t), d.scores, top, total, t.first, to, ld_out, s.d);
      kernels.product_packed(t.rows, s.d, t.cols, d.scores, s.ld_scores, d.values, cols, value_width,
                             !t.first, to, ld_out);
    });
  }
  kernels.softmax_finish(queries, s.d, o32, ld_out, d.top, d.total, lse + std::uint64_t{q_begin} * s.heads,
                         s.heads);
  store_rows(kernels, o32, queries, s.d, o + q_begin * ldo, ldo);
}

// Addresses of the first row of a sequence for one query head and its key/value head. dq is f32, as dk and dv
// of the tile of keys.
template <class T>
struct Rows {
  const T *q, *d_o, *o;
  const float* lse;
  T* dq_stored;
  float* dq;
};
// Adds the contribution of one tile to dq, dk and dv: p and ds from q, k, lse and delta; dv += p^T dO, dk +=
// ds^T q, dq += ds k. dq is overwritten by the first tile of keys of each query. copies: of a tile of queries
// and one of gradients.
template <class T>
void backward_tile(const Kernels& kernels, const Shape& s, const ThreadBuffers& d, const Rows<T>& r,
                   const Tile& t, std::uint32_t cols, const float* delta, std::uint64_t ldo, float* dk,
                   float* dv, float* copies) {
  const std::uint64_t key_width = kernels.panel_width(cols), ld = ld_f32<T>(s.ld, d),
                      ld_o = ld_f32<T>(ldo, d);
  const float* q = as_f32(kernels, r.q + t.q0 * s.ld, t.rows, s.d, s.ld, copies);
  const float* d_o = as_f32(kernels, r.d_o + t.q0 * ldo, t.rows, s.d, ldo, copies + s.tile_q * d.ld_widened);
  kernels.product_packed(t.rows, t.cols, s.d, q, ld, d.keys_t, s.d, key_width, false, d.scores, s.ld_scores);
  kernels.product_packed(t.rows, t.cols, s.d, d_o, ld_o, d.values_t, s.d, key_width, false, d.dscores,
                         s.ld_scores);
  kernels.softmax_bwd_tile(mask(s, t), d.scores, d.dscores, r.lse + std::uint64_t{t.q0} * s.heads, s.heads,
                           delta + t.q0);
  kernels.product(t.cols, s.d, t.rows, d.scores, s.ld_scores, true, d_o, ld_o, true, dv, ld, d.work);
  kernels.product(t.cols, s.d, t.rows, d.dscores, s.ld_scores, true, q, ld, true, dk, ld, d.work);
  kernels.product_packed(t.rows, s.d, t.cols, d.dscores, s.ld_scores, d.keys, cols, kernels.panel_width(s.d),
                         !t.first, r.dq + t.q0 * ld, ld);
}

void clear_rows(float* to, std::uint64_t rows, std::uint64_t n, std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r) std::memset(to + r * ld, 0, n * sizeof(float));
}

// Task: a block of queries of one head of one sequence.
template <class T>
void attention_forward(OpContext& ctx, const step::Op& op) {
  const Shape s = shape(ctx, op);
  const T* qkv = ctx.at<T>(op[attention::kQkv]);
  T* o = ctx.at<T>(op[attention::kO]);
  float* lse = ctx.f32(op[attention::kLse]);
  const std::uint64_t sequences = ctx.step.rows / s.seq, ldo = std::uint64_t{s.heads} * s.d;
  const std::uint32_t block = query_block(ctx.program.traits), blocks = (s.seq + block - 1) / block;
  ctx.pool.run(
      static_cast<std::uint32_t>(sequences * s.heads * blocks), [&](std::uint32_t i, std::uint32_t worker) {
        const std::uint32_t q_begin = i % blocks * block, head = i / blocks % s.heads;
        const std::uint64_t row0 = std::uint64_t{i / blocks / s.heads} * s.seq, kv = head / s.group();
        const T* base = qkv + row0 * s.ld;
        forward_block(ctx.kernels, s.of_sequence(ctx.step.starts, row0),
                      thread_buffers(ctx, s, op[attention::kScratch], worker), base + head * s.d,
                      base + (s.heads + kv) * s.d, base + (s.heads + s.kv_heads + kv) * s.d, q_begin,
                      std::min(q_begin + block, s.seq), o + row0 * ldo + head * s.d, ldo,
                      lse + row0 * s.heads + head);
      });
}

// Task: one key/value head of one sequence with all query heads that share it, in order, so that dk and dv
// have one writer.
template <class T>
void attention_backward(OpContext& ctx, const step::Op& op) {
  const Shape all = shape(ctx, op);
  const T *d_o = ctx.at<T>(op[attention_bwd::kDO]), *o = ctx.at<T>(op[attention_bwd::kO]),
          *qkv = ctx.at<T>(op[attention_bwd::kQkv]);
  const float* lse = ctx.f32(op[attention_bwd::kLse]);
  T* dqkv = ctx.at<T>(op[attention_bwd::kDQkv]);
  const std::uint64_t sequences = ctx.step.rows / all.seq, ldo = std::uint64_t{all.heads} * all.d;
  ctx.pool.run(
      static_cast<std::uint32_t>(sequences * all.kv_heads), [&](std::uint32_t i, std::uint32_t worker) {
        const Kernels& kernels = ctx.kernels;
        const std::uint64_t row0 = std::uint64_t{i / all.kv_heads} * all.seq, kv = i % all.kv_heads;
        const Shape s = all.of_sequence(ctx.step.starts, row0);
        const std::uint64_t at_k = row0 * s.ld + (s.heads + kv) * s.d,
                            at_v = at_k + std::uint64_t{s.kv_heads} * s.d;
        const ThreadBuffers d = thread_buffers(ctx, s, op[attention_bwd::kScratch], worker);
        const std::uint64_t ld = ld_f32<T>(s.ld, d);
        // Widened rows: keys or values, their gradients, a tile of queries and of gradients, dq of the group.
        float *const copy = d.widened, *const dk_copy = d.widened_row(s.tile_k),
                     *const dv_copy = d.widened_row(2 * s.tile_k), *const tiles = d.widened_row(3 * s.tile_k),
                     *const dq_copy = d.widened_row(3 * s.tile_k + 2 * s.tile_q);
        auto rows = [&](std::uint32_t member) {
          const std::uint64_t head = kv * s.group() + member, at_q = row0 * s.ld + head * s.d,
                              at_o = row0 * ldo + head * s.d;
          return Rows<T>{
              qkv + at_q,  d_o + at_o,
              o + at_o,    lse + row0 * s.heads + head,
              dqkv + at_q, in_f32(dqkv + at_q, dq_copy + std::uint64_t{member} * s.seq * d.ld_widened)};
        };
        for (std::uint32_t h = 0; h < s.group(); ++h)
          ctx.rows<T>().row_dots(s.seq, s.d, rows(h).d_o, ldo, rows(h).o, ldo, d.delta + h * s.seq);
        for (std::uint32_t k0 = 0; k0 < s.seq; k0 += s.tile_k) {
          const std::uint32_t cols = std::min(s.tile_k, s.seq - k0);
          const std::uint64_t width = kernels.panel_width(cols);
          T *const dk_stored = dqkv + at_k + k0 * s.ld, *const dv_stored = dqkv + at_v + k0 * s.ld;
          float *const dk = in_f32(dk_stored, dk_copy), *const dv = in_f32(dv_stored, dv_copy);
          const float* v = as_f32(kernels, qkv + at_v + k0 * s.ld, cols, s.d, s.ld, copy);
          kernels.pack_transposed(cols, s.d, v, ld, width, d.values_t);
          const float* k = as_f32(kernels, qkv + at_k + k0 * s.ld, cols, s.d, s.ld, copy);
          kernels.pack_transposed(cols, s.d, k, ld, width, d.keys_t);
          kernels.pack(s.d, cols, k, ld, kernels.panel_width(s.d), d.keys);
          clear_rows(dk, cols, s.d, ld);
          clear_rows(dv, cols, s.d, ld);
          for (std::uint32_t h = 0; h < s.group(); ++h)
            over_queries(s, 0, s.seq, k0, [&](const Tile& t) {
              backward_tile(kernels, s, d, rows(h), t, cols, d.delta + h * s.seq, ldo, dk, dv, tiles);
            });
          store_rows(kernels, dk, cols, s.d, dk_stored, s.ld);
          store_rows(kernels, dv, cols, s.d, dv_stored, s.ld);
        }
        for (std::uint32_t h = 0; h < s.group(); ++h)
          store_rows(kernels, rows(h).dq, s.seq, s.d, rows(h).dq_stored, s.ld);
      });
}

// One token at position p: appends its key and value to the caches, then each head attends to the cached
// keys.
template <class T>
void attention_of_token(OpContext& ctx, const step::Op& op) {
  const Shape s = shape(ctx, op);
  const ThreadBuffers d = thread_buffers(ctx, s, op[attention_step::kScratch], 0);
  const std::uint64_t p = ctx.step.position, kv_width = std::uint64_t{s.kv_heads} * s.d;
  const std::uint64_t first = s.window && p + 1 > s.window ? p + 1 - s.window : 0, count = p + 1 - first,
                      ld = ld_f32<T>(kv_width, d);
  const T* qkv = ctx.at<T>(op[attention_step::kQkv]);
  T *keys = ctx.at<T>(op[attention_step::kCacheK]), *values = ctx.at<T>(op[attention_step::kCacheV]),
    *o = ctx.at<T>(op[attention_step::kO]);
  float *scratch = ctx.f32(op[attention_step::kScratch]), *copy = d.widened_row(2);
  std::memcpy(keys + p * kv_width, qkv + std::uint64_t{s.heads} * s.d, kv_width * sizeof(T));
  std::memcpy(values + p * kv_width, qkv + std::uint64_t{s.heads} * s.d + kv_width, kv_width * sizeof(T));
  for (std::uint32_t head = 0; head < s.heads; ++head) {
    const std::uint64_t at = first * kv_width + std::uint64_t{head / (s.heads / s.kv_heads)} * s.d;
    float *scores = scratch + head * s.seq, top, total, lse;
    const float* q = as_f32(ctx.kernels, qkv + head * s.d, 1, s.d, s.d, d.widened);
    float* to = in_f32(o + head * s.d, d.widened_row(1));
    const float* k = as_f32(ctx.kernels, keys + at, count, s.d, kv_width, copy);
    ctx.kernels.row_dots(static_cast<std::uint32_t>(count), s.d, k, ld, q, 0, scores);
    const AttentionTile all = {1,
                               static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(p),
                               static_cast<std::uint32_t>(first),
                               0,
                               s.scale};
    ctx.kernels.softmax_tile(all, scores, &top, &total, true, to, s.d, s.d);
    const float* v = as_f32(ctx.kernels, values + at, count, s.d, kv_width, copy);
    ctx.kernels.product(1, s.d, count, scores, count, false, v, ld, false, to, s.d, d.work);
    ctx.kernels.softmax_finish(1, s.d, to, s.d, &top, &total, &lse, 1);
    store_rows(ctx.kernels, to, 1, s.d, o + head * s.d, s.d);
  }
}

}  // namespace

void run_attention(OpContext& ctx, const step::Op& op) {
  if (computes_attention_in_bf16(ctx, op)) return bf16_attention(ctx, op);
  ctx.by_storage([&](auto stored) { attention_forward<decltype(stored)>(ctx, op); });
}
void run_attention_bwd(OpContext& ctx, const step::Op& op) {
  if (computes_attention_in_bf16(ctx, op)) return bf16_attention_bwd(ctx, op);
  ctx.by_storage([&](auto stored) { attention_backward<decltype(stored)>(ctx, op); });
}
void run_attention_step(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { attention_of_token<decltype(stored)>(ctx, op); });
}

}  // namespace trainhost::cpu
