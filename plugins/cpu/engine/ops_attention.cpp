// Causal attention by tiles with an online softmax: scores exist only one tile at a time, the backward pass makes them
// again. Source: Dao et al. 2022 (FlashAttention), algorithms 1 and 4. Queries of a tile stand at q0.., keys at k0..;
// a row of qkv is  q heads | k heads | v heads,  D floats each; A/K query heads share one key/value head.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "plugins/cpu/engine/exec.hpp"
#include "plugins/cpu/engine/product.hpp"

namespace trainhost::cpu {
namespace {

constexpr std::uint32_t kMaxTileRows = 256;  // running maxima and sums live on the stack

struct Shape {
  std::uint32_t seq, tile_q, tile_k, d, heads, kv_heads, window;
  std::uint64_t ld;         // of a row of qkv
  float scale;
  std::uint32_t q_tiles() const { return (seq + tile_q - 1) / tile_q; }
  // First key tile that the queries from q0 on see.
  std::uint32_t first_key(std::uint32_t q0) const {
    if (!window || q0 + 1 <= window) return 0;
    return (q0 + 1 - window) / tile_k * tile_k;
  }
};

Shape shape(const Exec& e, const plan::Op& op) {
  const ModelSpec& m = e.model();
  const Profile& p = e.program.profile;
  Shape s{};
  s.seq = e.program.run.seq_len;
  s.tile_q = std::min({p.attention_tile_q, s.seq, kMaxTileRows});
  s.tile_k = std::min(p.attention_tile_k, s.seq);
  s.d = m.head_dim, s.heads = m.heads, s.kv_heads = m.kv_heads;
  s.window = m.window(static_cast<std::uint32_t>(op.layer));
  s.ld = m.qkv_width();
  s.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(m.head_dim)));
  return s;
}

float* worker_scratch(Exec& e, plan::BufferId b, std::uint32_t worker) {
  return e.f32(b) + worker * (e.buffer(b).rows * e.buffer(b).cols / e.program.profile.threads);
}

struct KeyTile {
  std::uint32_t k0, cols;
};
// Calls f for every key tile that a tile of `rows` queries from q0 on sees, in order.
template <class F>
void over_keys(const Shape& s, std::uint32_t q0, std::uint32_t rows, F&& f) {
  for (std::uint32_t k0 = s.first_key(q0); k0 < q0 + rows; k0 += s.tile_k)
    f(KeyTile{k0, std::min(s.tile_k, q0 + rows - k0)});
}

// scores[rows, cols] = q k^T; the keys are packed into `work` first.
void scores_of(const Kernels& kernels, const Shape& s, std::uint32_t rows, std::uint32_t cols, const float* q, std::uint64_t ldq,
               const float* k, float* scores, float* work) {
  const std::uint64_t width = kernels.panel_width(cols);
  kernels.pack_transposed(cols, s.d, k, s.ld, width, work);
  kernels.product_packed(rows, cols, s.d, q, ldq, work, width, false, scores, s.tile_k);
}

// One head of one sequence, one tile of queries. work: of a thread, see workspace.hpp.
void forward_tile(const Kernels& kernels, const Shape& s, const float* q, const float* k, const float* v, std::uint32_t q0,
                  std::uint32_t rows, float* scores, float* o, std::uint64_t ldo, float* lse, float* work) {
  float top[kMaxTileRows], total[kMaxTileRows];
  bool first = true;
  over_keys(s, q0, rows, [&](KeyTile t) {
    scores_of(kernels, s, rows, t.cols, q, s.ld, k + t.k0 * s.ld, scores, work + kProductWork);
    kernels.softmax_tile({rows, t.cols, s.tile_k, q0, t.k0, s.window, s.scale}, scores, top, total, first, o, ldo, s.d);
    kernels.product(rows, s.d, t.cols, scores, s.tile_k, false, v + t.k0 * s.ld, s.ld, !first, o, ldo, work);
    first = false;
  });
  kernels.softmax_finish(rows, s.d, o, ldo, top, total, lse, s.heads);
}

struct Grads {
  float *dq, *dk, *dv;  // inside dqkv, rows of Shape::ld
};
// dq of one tile of queries is written, dk and dv of the keys it sees are added to.
void backward_tile(const Kernels& kernels, const Shape& s, const float* q, const float* k, const float* v, const float* o,
                   const float* d_o, std::uint64_t ldo, const float* lse, std::uint32_t q0, std::uint32_t rows,
                   float* scores, float* dscores, Grads g, float* work) {
  float delta[kMaxTileRows];
  kernels.row_dots(rows, s.d, d_o, ldo, o, ldo, delta);
  bool first = true;
  over_keys(s, q0, rows, [&](KeyTile t) {
    const std::uint64_t at = t.k0 * s.ld;
    scores_of(kernels, s, rows, t.cols, q, s.ld, k + at, scores, work + kProductWork);
    scores_of(kernels, s, rows, t.cols, d_o, ldo, v + at, dscores, work + kProductWork);
    kernels.softmax_bwd_tile({rows, t.cols, s.tile_k, q0, t.k0, s.window, s.scale}, scores, dscores, lse, s.heads, delta);
    kernels.product(t.cols, s.d, rows, scores, s.tile_k, true, d_o, ldo, true, g.dv + at, s.ld, work);
    kernels.product(t.cols, s.d, rows, dscores, s.tile_k, true, q, s.ld, true, g.dk + at, s.ld, work);
    kernels.product(rows, s.d, t.cols, dscores, s.tile_k, false, k + at, s.ld, !first, g.dq, s.ld, work);
    first = false;
  });
}

}  // namespace

// Task: one tile of queries of one head of one sequence.
void run_attention(Exec& e, const plan::Op& op) {
  const Shape s = shape(e, op);
  const float* qkv = e.f32(op.in[0]);
  float *o = e.f32(op.out[0]), *lse = e.f32(op.out[1]);
  const std::uint64_t sequences = e.step.rows / s.seq, ldo = std::uint64_t{s.heads} * s.d;
  const std::uint32_t q_tiles = s.q_tiles(), group = s.heads / s.kv_heads;
  e.pool.run(static_cast<std::uint32_t>(sequences * s.heads * q_tiles), [&](std::uint32_t i, std::uint32_t worker) {
    const std::uint32_t q0 = i % q_tiles * s.tile_q, head = i / q_tiles % s.heads, rows = std::min(s.tile_q, s.seq - q0);
    const std::uint64_t row0 = std::uint64_t{i / q_tiles / s.heads} * s.seq, kv = head / group;
    const float* base = qkv + row0 * s.ld;
    forward_tile(e.kernels, s, base + q0 * s.ld + head * s.d, base + (s.heads + kv) * s.d,
                 base + (s.heads + s.kv_heads + kv) * s.d, q0, rows, worker_scratch(e, op.in[1], worker),
                 o + (row0 + q0) * ldo + head * s.d, ldo, lse + (row0 + q0) * s.heads + head, e.worker_space(worker));
  });
}

// Task: one key/value head of one sequence, with all query heads that share it, in order: dk and dv have one writer.
void run_attention_bwd(Exec& e, const plan::Op& op) {
  const Shape s = shape(e, op);
  const float *d_o = e.f32(op.in[0]), *o = e.f32(op.in[1]), *lse = e.f32(op.in[2]), *qkv = e.f32(op.in[3]);
  float* dqkv = e.f32(op.out[0]);
  const std::uint64_t sequences = e.step.rows / s.seq, ldo = std::uint64_t{s.heads} * s.d;
  const std::uint32_t group = s.heads / s.kv_heads;
  e.pool.run(static_cast<std::uint32_t>(sequences * s.kv_heads), [&](std::uint32_t i, std::uint32_t worker) {
    const std::uint64_t row0 = std::uint64_t{i / s.kv_heads} * s.seq, kv = i % s.kv_heads;
    const std::uint64_t at_k = row0 * s.ld + (s.heads + kv) * s.d, at_v = at_k + std::uint64_t{s.kv_heads} * s.d;
    float* scores = worker_scratch(e, op.in[4], worker);
    float* dscores = scores + std::uint64_t{s.tile_q} * s.tile_k;
    for (std::uint64_t r = 0; r < s.seq; ++r) {
      std::memset(dqkv + at_k + r * s.ld, 0, s.d * sizeof(float));
      std::memset(dqkv + at_v + r * s.ld, 0, s.d * sizeof(float));
    }
    for (std::uint64_t head = kv * group; head < (kv + 1) * group; ++head)
      for (std::uint32_t q0 = 0; q0 < s.seq; q0 += s.tile_q) {
        const std::uint64_t at_q = (row0 + q0) * s.ld + head * s.d, at_o = (row0 + q0) * ldo + head * s.d;
        backward_tile(e.kernels, s, qkv + at_q, qkv + at_k, qkv + at_v, o + at_o, d_o + at_o, ldo,
                      lse + (row0 + q0) * s.heads + head, q0, std::min(s.tile_q, s.seq - q0), scores, dscores,
                      {dqkv + at_q, dqkv + at_k, dqkv + at_v}, e.worker_space(worker));
      }
  });
}

// One token at position p: its key and value join the cache, each head attends over what it sees of the cache.
void run_attention_step(Exec& e, const plan::Op& op) {
  const Shape s = shape(e, op);
  const std::uint64_t p = e.step.position, kv_width = std::uint64_t{s.kv_heads} * s.d;
  const std::uint64_t first = s.window && p + 1 > s.window ? p + 1 - s.window : 0, count = p + 1 - first;
  const float* qkv = e.f32(op.in[0]);
  float *keys = e.f32(op.in[1]), *values = e.f32(op.in[2]), *scratch = e.f32(op.in[3]), *o = e.f32(op.out[0]);
  std::memcpy(keys + p * kv_width, qkv + std::uint64_t{s.heads} * s.d, kv_width * sizeof(float));
  std::memcpy(values + p * kv_width, qkv + std::uint64_t{s.heads} * s.d + kv_width, kv_width * sizeof(float));
  for (std::uint32_t head = 0; head < s.heads; ++head) {
    const std::uint64_t at = std::uint64_t{head / (s.heads / s.kv_heads)} * s.d;
    float *scores = scratch + head * s.seq, top, total, lse;
    e.kernels.row_dots(static_cast<std::uint32_t>(count), s.d, keys + first * kv_width + at, kv_width, qkv + head * s.d, 0, scores);
    const AttentionTile all = {1, static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(first), 0, s.scale};
    e.kernels.softmax_tile(all, scores, &top, &total, true, o + head * s.d, s.d, s.d);
    e.kernels.product(1, s.d, count, scores, count, false, values + first * kv_width + at, kv_width, false, o + head * s.d, s.d,
                      e.worker_space(0));
    e.kernels.softmax_finish(1, s.d, o + head * s.d, s.d, &top, &total, &lse, 1);
  }
}

}  // namespace trainhost::cpu
