// The gradient of attention of bf16 heads by AMX. Included by bf16_amx.cpp behind attention_amx.hpp, whose
// blocks, packing and masks it uses. Keys are the outer loop: a tile of keys and values is packed once, with
// its gradients in f32, and a tile of queries once per tile of keys. Gradients of queries are summed
// transposed.
#pragma once

namespace attention {

// What the vector stage reads of 32 queries.
struct Scalars {
  float lse[kBackwardQueries];  // times log2(e)
  float delta[kBackwardQueries];
  std::int32_t keys[kBackwardQueries];  // the first ones that they attend to
};

// Parts of p and ds = p * (dp - delta), of a block of 32 keys by 32 queries: as rows of a left operand, whose
// inner elements are the queries in the order of merge(), and ds as an inner block of a right operand.
struct Parts {
  std::uint16_t *p, *ds, *ds_pairs;  // hi; lo is `part` words behind
  std::uint64_t part;
};
template <bool kMasked>
static inline __attribute__((always_inline)) void gradient_block(const float* s, const float* dp,
                                                                 std::uint32_t k0, const Queries q[2],
                                                                 __m512 scale, const float* lse,
                                                                 const float* delta, Parts to) {
  const __m512 shift[2] = {_mm512_loadu_ps(lse), _mm512_loadu_ps(lse + 16)},
               mean[2] = {_mm512_loadu_ps(delta), _mm512_loadu_ps(delta + 16)};
  for (std::uint32_t k = 0; k < kStrip; k += 2) {
    __m512 p[2][2], ds[2][2];
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const std::uint32_t at = (k + std::uint32_t(r)) * kStrip + std::uint32_t(16 * v);
        p[r][v] = power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(s + at), scale, shift[v]));
        ds[r][v] = p[r][v] * (_mm512_loadu_ps(dp + at) - mean[v]);
        if (kMasked) {
          const __mmask16 see = q[v].see(k0 + k + std::uint32_t(r));
          p[r][v] = _mm512_maskz_mov_ps(see, p[r][v]);
          ds[r][v] = _mm512_maskz_mov_ps(see, ds[r][v]);
        }
      }
    __m512 low[2][2];
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      std::uint16_t* const row = to.p + (k + std::uint32_t(r)) * kStrip;
      _mm512_storeu_si512(row, merge(p[r][0], p[r][1]));
      _mm512_storeu_si512(row + to.part, merge(rest(p[r][0]), rest(p[r][1])));
      std::uint16_t* const ds_row = to.ds + (k + std::uint32_t(r)) * kStrip;
      low[r][0] = rest(ds[r][0]), low[r][1] = rest(ds[r][1]);
      _mm512_storeu_si512(ds_row, merge(ds[r][0], ds[r][1]));
      _mm512_storeu_si512(ds_row + to.part, merge(low[r][0], low[r][1]));
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      std::uint16_t* const pairs = to.ds_pairs + k / 2 * 64 + 32 * v;
      _mm512_storeu_si512(pairs, merge(ds[0][v], ds[1][v]));
      _mm512_storeu_si512(pairs + to.part, merge(low[0][v], low[1][v]));
    }
  }
}

// Memory of a backward task.
struct Backward {
  std::uint32_t keys;                                // of a tile
  std::uint16_t *k, *v, *k_columns;                  // packed keys and values
  std::uint16_t *q, *d_o, *q_columns, *d_o_columns;  // a packed tile of queries
  std::uint16_t *p, *ds, *ds_pairs;                  // [2 parts][...]
  float *dk, *dv;                                    // [keys][wide]
  float *scores, *dscores;                           // [32][32]
  float* dq;                                         // [member of the group][panel][wide][32]
};
static constexpr std::uint64_t kPart = std::uint64_t{kBackwardQueries} * kBackwardChunk;

static Backward backward_memory(const Bf16Attention& s, Memory& m) {
  const std::uint64_t wide = strips(s.d) * kStrip;
  Backward b{};
  b.keys = wide <= 128 ? 2 * kBackwardChunk : kBackwardChunk;
  std::uint16_t **const of_keys[] = {&b.k, &b.v, &b.k_columns},
                        **const of_queries[] = {&b.q, &b.d_o, &b.q_columns, &b.d_o_columns},
                        **const of_scores[] = {&b.p, &b.ds, &b.ds_pairs};
  for (auto* const part : of_keys) *part = m.take<std::uint16_t>(b.keys * wide);
  for (auto* const part : of_queries) *part = m.take<std::uint16_t>(kBackwardQueries * wide);
  for (auto* const part : of_scores) *part = m.take<std::uint16_t>(2 * kPart);
  b.dk = m.take<float>(b.keys * wide), b.dv = m.take<float>(b.keys * wide);
  b.scores = m.take<float>(kStrip * kStrip), b.dscores = m.take<float>(kStrip * kStrip);
  b.dq = m.take<float>(std::uint64_t{s.group} * strips(s.seq) * kStrip * wide);
  return b;
}

// Adds the contributions of the keys [kc, kc + count) and the packed queries [q0, q0 + rows) to dk, dv and
// dq. at: of the first of these keys in the packed tile.
static void backward_chunk(const Bf16Attention& s, const Backward& b, const Scalars& of, std::uint32_t at,
                           std::uint32_t kc, std::uint32_t count, std::uint32_t tile_strips, std::uint32_t q0,
                           std::uint32_t rows, float* dq) {
  const std::uint32_t blocks = strips(s.d), wide = blocks * kStrip, panels = strips(rows),
                      first_strip = at / kStrip;
  const auto lowest = std::uint32_t(of.keys[0]);
  const std::uint32_t begin = lowest > kc ? (lowest - kc) / kStrip : 0,
                      end = strips(least(count, q0 + rows - kc));
  const __m512 scale = _mm512_set1_ps(s.scale * kLog2E);
  for (std::uint32_t i = begin; i < end; ++i)
    for (std::uint32_t j = 0; j < panels; ++j) {
      const std::uint32_t k0 = kc + i * kStrip, qj = q0 + j * kStrip;
      const std::int32_t* const keys = of.keys + j * kStrip;
      // p and ds: [panel][chunk of keys][32]; pairs: [panel][strip][16][32][2]
      const Parts parts = {b.p + (j * kBackwardChunk + i * kStrip) * kStrip,
                           b.ds + (j * kBackwardChunk + i * kStrip) * kStrip,
                           b.ds_pairs + (j * kBackwardChunk + i * kStrip) * kStrip, kPart};
      block_product(false, b.scores, kStrip, b.k + (first_strip + i) * kStrip * wide, 1024,
                    b.q + j * kStrip * wide, 1024, blocks);
      block_product(false, b.dscores, kStrip, b.v + (first_strip + i) * kStrip * wide, 1024,
                    b.d_o + j * kStrip * wide, 1024, blocks);
      finish_stores();
      const Queries q[2] = {Queries::at(qj, keys), Queries::at(qj + 16, keys + 16)};
      if (all_visible(qj, keys, k0))
        gradient_block<false>(b.scores, b.dscores, k0, q, scale, of.lse + j * kStrip, of.delta + j * kStrip,
                              parts);
      else
        gradient_block<true>(b.scores, b.dscores, k0, q, scale, of.lse + j * kStrip, of.delta + j * kStrip,
                             parts);
    }
  for (std::uint32_t i = begin; i < end; ++i)
    for (std::uint32_t j = 0; j < blocks; ++j) {
      const std::uint64_t to = std::uint64_t{at + i * kStrip} * wide + j * kStrip;
      const std::uint64_t left = i * kStrip * kStrip, right = std::uint64_t{j} * panels * 1024;
      split_left_product(b.dv + to, wide, b.p + left, kPart, kBackwardChunk * kStrip, b.d_o_columns + right,
                         1024, panels);
      split_left_product(b.dk + to, wide, b.ds + left, kPart, kBackwardChunk * kStrip, b.q_columns + right,
                         1024, panels);
    }
  for (std::uint32_t p = 0; p < panels; ++p)
    for (std::uint32_t j = 0; j < blocks; ++j)
      split_right_product(true, dq + (p * wide + j * kStrip) * kStrip, kStrip,
                          b.k_columns + (j * tile_strips + first_strip + begin) * 1024, 1024,
                          b.ds_pairs + (p * kBackwardChunk + begin * kStrip) * kStrip, kPart, 1024,
                          end - begin);
}

// rows of d bf16 elements from rows of `wide` f32, times a factor.
static void store_rows(std::uint32_t rows, std::uint32_t d, const float* from, std::uint64_t wide,
                       float factor, Bf16* to, std::uint64_t ld) {
  for (std::uint32_t r = 0; r < rows; ++r)
    for (std::uint32_t j = 0; j < d; j += 16)
      _mm256_mask_storeu_epi16(
          to + r * ld + j, first(d - j),
          (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + r * wide + j) * _mm512_set1_ps(factor)));
}

static void backward(const Bf16Attention& s, const Bf16* q, const Bf16* k, const Bf16* v, const Bf16* d_o,
                     const float* lse, const float* delta, Bf16* dq, Bf16* dk, Bf16* dv, void* memory) {
  begin_blocks();
  Memory m{reinterpret_cast<std::uintptr_t>(memory)};
  const Backward b = backward_memory(s, m);
  const std::uint32_t wide = strips(s.d) * kStrip;
  const std::uint64_t member_floats = std::uint64_t{strips(s.seq)} * kStrip * wide;
  Scalars of;
  __builtin_memset(b.dq, 0, s.group * member_floats * sizeof(float));
  for (std::uint32_t k0 = 0; k0 < s.seq; k0 += b.keys) {
    const std::uint32_t count = least(b.keys, s.seq - k0), tile_strips = strips(count);
    pack_rows_left(count, s.d, k + k0 * s.ld, s.ld, b.k);
    pack_rows_left(count, s.d, v + k0 * s.ld, s.ld, b.v);
    pack_columns_left(count, s.d, k + k0 * s.ld, s.ld, b.k_columns);
    __builtin_memset(b.dk, 0, std::uint64_t{tile_strips} * kStrip * wide * sizeof(float));
    __builtin_memset(b.dv, 0, std::uint64_t{tile_strips} * kStrip * wide * sizeof(float));
    for (std::uint32_t h = 0; h < s.group; ++h)
      for (std::uint32_t q0 = k0; q0 < s.seq; q0 += kBackwardQueries) {
        const std::uint32_t rows = least(kBackwardQueries, s.seq - q0);
        first_keys(s, q0, kBackwardQueries, s.seq, of.keys);
        if (of.keys[0] >= std::int32_t(k0 + count)) break;  // as do all later queries
        for (std::uint32_t i = 0; i < kBackwardQueries; ++i) {
          of.lse[i] = i < rows ? lse[std::uint64_t{q0 + i} * s.ld_lse + h] * kLog2E : 0.0f;
          of.delta[i] = i < rows ? delta[std::uint64_t{h} * s.seq + q0 + i] : 0.0f;
        }
        const Bf16 *const q_rows = q + q0 * s.ld + h * s.d, *const o_rows = d_o + q0 * s.ld_o + h * s.d;
        pack_rows_right(rows, s.d, q_rows, s.ld, b.q);
        pack_rows_right(rows, s.d, o_rows, s.ld_o, b.d_o);
        pack_columns_right(rows, s.d, q_rows, s.ld, b.q_columns);
        pack_columns_right(rows, s.d, o_rows, s.ld_o, b.d_o_columns);
        for (std::uint32_t at = 0; at < count && k0 + at < q0 + rows; at += kBackwardChunk)
          if (of.keys[0] < std::int32_t(k0 + least(count, at + kBackwardChunk)))
            backward_chunk(s, b, of, at, k0 + at, least(kBackwardChunk, count - at), tile_strips, q0, rows,
                           b.dq + h * member_floats + std::uint64_t{q0} * wide);
      }
    finish_stores();
    store_rows(count, s.d, b.dk, wide, s.scale, dk + k0 * s.ld, s.ld);
    store_rows(count, s.d, b.dv, wide, 1.0f, dv + k0 * s.ld, s.ld);
  }
  for (std::uint32_t h = 0; h < s.group; ++h)
    for (std::uint32_t i = 0; i < s.seq; i += 16)
      store_transposed(least(16, s.seq - i), s.d,
                       b.dq + h * member_floats + std::uint64_t{i / kStrip} * kStrip * wide + i % kStrip,
                       kStrip, _mm512_set1_ps(s.scale), dq + i * s.ld + h * s.d, s.ld);
  end_blocks();
}

static std::uint64_t bytes(const Bf16Attention& s) {
  const std::uint64_t wide = strips(s.d) * kStrip,
                      queries = strips(least(s.seq, kBf16AttentionQueries)) * kStrip;
  const std::uint64_t forward_bytes =
      (queries * 6 + kForwardKeys * 4) * wide + kForwardKeys * kStrip * 8 + 6 * 64;
  Memory m{0};
  backward_memory(s, m);
  return forward_bytes > m.at ? forward_bytes : m.at;
}

}  // namespace attention
