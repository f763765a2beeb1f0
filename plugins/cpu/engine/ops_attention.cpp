// Causal attention by tiles with an online softmax (Dao et al. 2022, FlashAttention, algorithm 1), and
// attention of one generated token. Keys are the outer loop, so that a tile of keys and values is packed once
// for all queries of a block that attend to it. Kernels: kernels/rows_attention.hpp,
// kernels/small_product.hpp. Tiles and memory: attention_tiles.hpp.
#include "core/step/operands.hpp"
#include "plugins/cpu/engine/attention_tiles.hpp"
#include "plugins/cpu/engine/bf16_attention.hpp"

namespace trainhost::cpu {

using namespace step::operand;
using namespace attention_tiles;

namespace {

// Attention of the queries [q_begin, q_end) of one head. q, k, v, o and lse point at the head's elements in
// the first row of the sequence. o is accumulated unnormalised and rescaled when a row's maximum grows;
// softmax_finish() normalises it.
template <class T>
void forward_block(const Kernels& kernels, const Shape& s, const ThreadBuffers& d, const T* q, const T* k,
                   const T* v, std::uint32_t q_begin, std::uint32_t q_end, T* o, std::uint64_t ldo,
                   float* lse) {
  const std::uint64_t value_width = kernels.panel_width(s.d);
  const std::uint32_t queries = q_end - q_begin;
  float *const q32 = d.row(0), *const o32 = d.row(kQueryBlock), *const copy = d.row(2 * kQueryBlock);
  copy_rows(kernels, q + q_begin * s.ld, queries, s.d, s.ld, q32);
  for (std::uint32_t k0 = s.first_key(q_begin); k0 < q_end; k0 += s.tile_k) {
    const std::uint32_t cols = std::min({s.tile_k, s.seq - k0, q_end - k0});
    const std::uint64_t key_width = kernels.panel_width(cols);
    const RowsF32 k32 = as_f32(kernels, k + k0 * s.ld, cols, s.d, s.ld, copy);
    kernels.pack_transposed(cols, s.d, k32.at, k32.ld, key_width, d.keys_t);
    const RowsF32 v32 = as_f32(kernels, v + k0 * s.ld, cols, s.d, s.ld, copy);
    kernels.pack(s.d, cols, v32.at, v32.ld, value_width, d.values);
    RowsFetch<false, T> next(k, v, s, k0 + cols, std::min(q_end, k0 + cols + s.tile_k));
    over_queries(s, q_begin, q_end, k0, [&](const Tile& t) {
      next.fetch_part();
      if (t.last) {
        fetch_rows<true>(o + t.q0 * ldo, t.rows, s.d, ldo);
        const std::uint32_t later = std::min(t.q0 + queries, s.seq);  // of the next task
        fetch_rows<false>(q + later * s.ld, std::min(t.rows, s.seq - later), s.d, s.ld);
      }
      const std::uint32_t row = t.q0 - q_begin;
      float *top = d.top + row, *total = d.total + row, *to = o32 + row * d.ld;
      kernels.product_packed(t.rows, t.cols, s.d, q32 + row * d.ld, d.ld, d.keys_t, s.d, key_width, false,
                             d.scores, s.ld_scores);
      kernels.softmax_tile(mask(s, t), d.scores, top, total, t.first, to, d.ld, s.d);
      kernels.product_packed(t.rows, s.d, t.cols, d.scores, s.ld_scores, d.values, cols, value_width,
                             !t.first, to, d.ld);
    });
  }
  kernels.softmax_finish(queries, s.d, o32, d.ld, d.top, d.total, lse + std::uint64_t{q_begin} * s.heads,
                         s.heads);
  store_rows(kernels, o32, queries, s.d, o + q_begin * ldo, ldo);
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

// One token at position p: appends its key and value to the caches, then each head attends to the cached
// keys.
template <class T>
void attention_of_token(OpContext& ctx, const step::Op& op) {
  const Shape s = shape(ctx, op);
  const ThreadBuffers d = thread_buffers(ctx, s, op[attention_step::kScratch], 0);
  const std::uint64_t p = ctx.step.position, kv_width = std::uint64_t{s.kv_heads} * s.d;
  const std::uint64_t first = s.window && p + 1 > s.window ? p + 1 - s.window : 0, count = p + 1 - first;
  const T* qkv = ctx.at<T>(op[attention_step::kQkv]);
  T *keys = ctx.at<T>(op[attention_step::kCacheK]), *values = ctx.at<T>(op[attention_step::kCacheV]),
    *o = ctx.at<T>(op[attention_step::kO]);
  float *scratch = ctx.f32(op[attention_step::kScratch]), *copy = d.row(2), *q = d.row(0), *to = d.row(1);
  std::memcpy(keys + p * kv_width, qkv + std::uint64_t{s.heads} * s.d, kv_width * sizeof(T));
  std::memcpy(values + p * kv_width, qkv + std::uint64_t{s.heads} * s.d + kv_width, kv_width * sizeof(T));
  for (std::uint32_t head = 0; head < s.heads; ++head) {
    const std::uint64_t at = first * kv_width + std::uint64_t{head / (s.heads / s.kv_heads)} * s.d;
    float *scores = scratch + head * s.seq, top, total, lse;
    copy_rows(ctx.kernels, qkv + head * s.d, 1, s.d, s.d, q);
    const RowsF32 k = as_f32(ctx.kernels, keys + at, count, s.d, kv_width, copy);
    ctx.kernels.row_dots(static_cast<std::uint32_t>(count), s.d, k.at, k.ld, q, 0, scores);
    const AttentionTile all = {1,
                               static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(p),
                               static_cast<std::uint32_t>(first),
                               0,
                               s.scale};
    ctx.kernels.softmax_tile(all, scores, &top, &total, true, to, s.d, s.d);
    const RowsF32 v = as_f32(ctx.kernels, values + at, count, s.d, kv_width, copy);
    ctx.kernels.product(1, s.d, count, scores, count, false, v.at, v.ld, false, to, s.d, d.work);
    ctx.kernels.softmax_finish(1, s.d, to, s.d, &top, &total, &lse, 1);
    store_rows(ctx.kernels, to, 1, s.d, o + head * s.d, s.d);
  }
}

}  // namespace

void run_attention(OpContext& ctx, const step::Op& op) {
  if (computes_attention_in_bf16(ctx, op)) return bf16_attention(ctx, op);
  ctx.by_storage([&](auto stored) { attention_forward<decltype(stored)>(ctx, op); });
}
void run_attention_step(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { attention_of_token<decltype(stored)>(ctx, op); });
}

}  // namespace trainhost::cpu
