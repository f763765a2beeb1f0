// What attention forward (ops_attention.cpp) and backward (ops_attention_bwd.cpp) share: shapes of tiles,
// memory of a thread, compact copies of rows, and which tiles of queries attend to a tile of keys.
//
// Only one tile of scores exists at a time. A row of qkv is q heads | k heads | v heads, D floats each; a
// group of A/K query heads shares one key/value head. Rows of qkv are kilobytes apart and share few sets of
// the caches, so queries, outputs and gradients are copied to compact rows, which are f32 whatever is stored.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu::attention_tiles {

/// Shape of an attention operation and of its tiles.
struct Shape {
  std::uint32_t seq, tile_q, tile_k, d, heads, kv_heads, window;
  std::uint64_t ld;         // floats between rows of qkv
  std::uint32_t ld_scores;  // between rows of a score tile
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

inline Shape shape(const OpContext& ctx, const step::Op& op) {
  const ModelSpec& m = ctx.model();
  const TrainerTraits& p = ctx.program.traits;
  Shape s{};
  s.seq = ctx.program.run.seq_len;
  s.tile_q = std::min(p.attention_tile_q, s.seq);
  s.tile_k = std::min(p.attention_tile_k, s.seq);
  s.d = m.head_dim, s.heads = m.heads, s.kv_heads = m.kv_heads;
  s.window = m.window(static_cast<std::uint32_t>(op.layer));
  s.ld = m.qkv_width();
  s.ld_scores = scores_ld(p, m.head_dim);
  s.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(m.head_dim)));
  return s;
}

// Memory of one thread: the tiles of scores are in the operation's scratch, the rest in the thread's
// workspace.
struct ThreadBuffers {
  float *scores, *dscores;
  float* work;  // of Kernels::product, which uses it only if rows of scores share cache sets
  float *keys_t, *values_t, *keys,
      *values;         // packed tiles; keys and values share memory: one is needed at a time
  float *top, *total;  // running maximum and sum of each query of a block
  float* delta;        // dot(o, d o) of each query of each head of a group
  // Compact rows in f32, compact_ld() floats apart (workspace.hpp).
  float* compact;
  std::uint64_t ld, compact_rows;
  float* row(std::uint64_t r) const { return compact + r * ld; }
};
inline ThreadBuffers thread_buffers(OpContext& ctx, const Shape& s, step::BufferId scratch,
                                    std::uint32_t worker) {
  ThreadBuffers d{};
  d.scores = ctx.f32(scratch) +
             worker * (ctx.buffer(scratch).rows * ctx.buffer(scratch).cols / ctx.program.traits.threads);
  d.dscores = d.scores + std::uint64_t{s.tile_q} * s.ld_scores;
  d.work = ctx.worker_workspace(worker);
  const std::uint64_t tile = packed_tile_floats(ctx.program.traits, s.d),
                      all = worker_floats(ctx.model(), ctx.program.run, ctx.program.traits);
  d.keys_t = d.work + (attention_product_needs_work(s.ld_scores) ? kProductWork : 0);
  d.values_t = d.keys_t + tile;
  d.keys = d.values = d.values_t + tile;
  d.top = d.keys + tile;
  d.total = d.top + kQueryBlock;
  d.delta = d.total + kQueryBlock;
  d.compact = d.delta + (std::uint64_t{s.group()} * s.seq + 15) / 16 * 16;
  d.ld = compact_ld(s.d);
  d.compact_rows = static_cast<std::uint64_t>(d.work + all - d.compact) / d.ld;
  return d;
}

// Compact copies of rows of d elements, and back.
inline void copy_rows(const Kernels& kernels, const float* from, std::uint64_t rows, std::uint64_t d,
                      std::uint64_t ld, float* copy) {
  kernels.pack(d, rows, from, ld, compact_ld(d), copy);  // one panel: a copy that prefetches
}
inline void copy_rows(const Kernels& kernels, const Bf16* from, std::uint64_t rows, std::uint64_t d,
                      std::uint64_t ld, float* copy) {
  for (std::uint64_t r = 0; r < rows; ++r) kernels.widen(d, from + r * ld, copy + r * compact_ld(d));
}
inline void store_rows(const Kernels&, const float* from, std::uint64_t rows, std::uint64_t d, float* to,
                       std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * ld, from + r * compact_ld(d), d * sizeof(float));
}
inline void store_rows(const Kernels& kernels, const float* from, std::uint64_t rows, std::uint64_t d,
                       Bf16* to, std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r) kernels.narrow(d, from + r * compact_ld(d), to + r * ld);
}
// Rows in f32 that are read once, to be packed: those of a tensor that is stored in f32, or a widened copy.
struct RowsF32 {
  const float* at;
  std::uint64_t ld;
};
inline RowsF32 as_f32(const Kernels&, const float* from, std::uint64_t, std::uint64_t, std::uint64_t ld,
                      float*) {
  return {from, ld};
}
inline RowsF32 as_f32(const Kernels& kernels, const Bf16* from, std::uint64_t rows, std::uint64_t d,
                      std::uint64_t ld, float* copy) {
  copy_rows(kernels, from, rows, d, ld, copy);
  return {copy, compact_ld(d)};
}
// Fetches rows of d elements into the L2 cache, to be read or written while other tiles are multiplied: they
// are kilobytes apart, so the hardware does not fetch them ahead.
template <bool kWrite, class T>
void fetch_rows(const T* at, std::uint64_t rows, std::uint64_t d, std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r, at += ld)
    for (std::uint64_t j = 0; j < d; j += 64 / sizeof(T)) __builtin_prefetch(at + j, kWrite, 2);
}

// Queries [q0, q0 + rows) and keys [k0, k0 + cols).
struct Tile {
  std::uint32_t q0, rows, k0, cols;
  bool first, last;  // the first, the last tile of keys for these queries
};
// Calls f for every tile of queries in [q_begin, q_end) that attends to the key tile at k0, in order.
template <class F>
void over_queries(const Shape& s, std::uint32_t q_begin, std::uint32_t q_end, std::uint32_t k0, F&& f) {
  std::uint32_t q0 = k0 <= q_begin ? q_begin : q_begin + (k0 - q_begin) / s.tile_q * s.tile_q;
  for (; q0 < q_end && s.first_key(q0) <= k0; q0 += s.tile_q) {
    const std::uint32_t rows = std::min(s.tile_q, q_end - q0);
    f(Tile{q0, rows, k0, std::min({s.tile_k, s.seq - k0, q0 + rows - k0}), s.first_key(q0) == k0,
           q0 + rows <= k0 + s.tile_k});
  }
}

// Fetches rows [begin, end) of two tensors in parts, one for each tile of scores.
template <bool kWrite, class T>
class RowsFetch {
 public:
  RowsFetch(const T* a, const T* b, const Shape& s, std::uint32_t begin, std::uint32_t end)
      : a_(a), b_(b), d_(s.d), ld_(s.ld), next_(begin), end_(end) {}
  void fetch_part() {
    constexpr std::uint32_t kRows = 32;
    if (next_ >= end_) return;
    const std::uint32_t rows = std::min(kRows, end_ - next_);
    fetch_rows<kWrite>(a_ + next_ * ld_, rows, d_, ld_);
    fetch_rows<kWrite>(b_ + next_ * ld_, rows, d_, ld_);
    next_ += rows;
  }

 private:
  const T *a_, *b_;
  std::uint64_t d_, ld_;
  std::uint32_t next_, end_;
};

inline AttentionTile mask(const Shape& s, const Tile& t) {
  return {t.rows, t.cols, s.ld_scores, t.q0, t.k0, s.window, s.scale, s.starts ? s.starts + t.q0 : nullptr};
}

}  // namespace trainhost::cpu::attention_tiles
