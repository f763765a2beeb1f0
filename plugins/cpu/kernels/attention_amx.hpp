// Attention of bf16 heads by AMX. Included by bf16_amx.cpp, inside its namespace; callers:
// engine/bf16_attention.cpp. Scores are computed transposed, S^T = K Q^T: a vector has 16 queries, so that
// maxima and sums of a query need no sums across lanes, and two vectors are merged to packed bf16 without
// shuffles. Probabilities and their gradients are split into two bf16 parts, hi + lo, whose sum has 16 bits
// of mantissa; all other operands of products are bf16 already. So results have the errors of f32 attention,
// not those of rounded probabilities. Softmax and sums are f32.
//
// Packed left operands: [strip of 32 rows][inner/32][32 rows][32 inner]; right ones: [panel of 32
// columns][inner/32][16 pairs of inner][32 columns][2] (bf16.hpp).
#pragma once

namespace attention {

constexpr std::uint32_t kStrip = 32;         // rows or columns of a block of tile registers
constexpr std::uint32_t kForwardKeys = 128;  // keys that are packed at a time
constexpr std::uint32_t kBackwardQueries = 64, kBackwardChunk = 128;
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLowest = -1e30f;  // maximum of a query without keys so far: finite, so differences are too

static inline std::uint32_t strips(std::uint32_t n) { return (n + kStrip - 1) / kStrip; }
static inline std::uint32_t least(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

/// 2^t, relative error below 1e-7: the fraction by a polynomial on [-0.5, 0.5].
static inline __attribute__((always_inline)) __m512 power_of_2(__m512 t) {
  const __m512 n = _mm512_maskz_roundscale_ps(0xffff, t, 0), r = t - n;
  __m512 p = _mm512_set1_ps(0.0013276470126584172f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.009675540961325169f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.05550713464617729f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24022120237350464f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931469440460205f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0000001192092896f));
  return _mm512_maskz_scalef_ps(0xffff, p, n);
}

// Upper halves of the words of `low` and `high`, as pairs: truncated to bf16.
static inline __attribute__((always_inline)) __m512i merge(__m512 low, __m512 high) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_maskz_srli_epi32(0xffff, (__m512i)low, 16),
                                 (__m512i)high);
}
// x minus its upper half: what merge() leaves.
static inline __attribute__((always_inline)) __m512 rest(__m512 x) {
  return x - (__m512)_mm512_maskz_and_epi32(0xffff, (__m512i)x, _mm512_set1_epi32(int(0xffff0000u)));
}

// C[32, 32] (= or +=) left * right over `inner` blocks of 32; steps in words. C is f32 with rows of ldc.
static inline __attribute__((always_inline)) void load_left(const std::uint16_t* left) {
  _tile_loadd(4, left, 64);
  _tile_loadd(5, left + 512, 64);
}
static inline __attribute__((always_inline)) void load_right(const std::uint16_t* right) {
  _tile_loadd(6, right, 128);
  _tile_loadd(7, right + 32, 128);
}
static inline __attribute__((always_inline)) void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}
static void block_product(bool add, float* c, std::uint64_t ldc, const std::uint16_t* left,
                          std::uint64_t left_step, const std::uint16_t* right, std::uint64_t right_step,
                          std::uint32_t inner) {
  finish_stores();
  load_sums(add, c, ldc);
  for (std::uint32_t o = 0; o < inner; ++o, left += left_step, right += right_step) {
    load_left(left);
    load_right(right);
    multiply_tiles();
  }
  store_sums(c, ldc);
}
// The same of a left operand in two parts, `part` words apart.
static void split_left_product(float* c, std::uint64_t ldc, const std::uint16_t* left, std::uint64_t part,
                               std::uint64_t left_step, const std::uint16_t* right, std::uint64_t right_step,
                               std::uint32_t inner) {
  finish_stores();
  load_sums(true, c, ldc);
  for (std::uint32_t o = 0; o < inner; ++o, left += left_step, right += right_step) {
    load_right(right);
    load_left(left);
    multiply_tiles();
    load_left(left + part);
    multiply_tiles();
  }
  store_sums(c, ldc);
}
static void split_right_product(bool add, float* c, std::uint64_t ldc, const std::uint16_t* left,
                                std::uint64_t left_step, const std::uint16_t* right, std::uint64_t part,
                                std::uint64_t right_step, std::uint32_t inner) {
  finish_stores();
  load_sums(add, c, ldc);
  for (std::uint32_t o = 0; o < inner; ++o, left += left_step, right += right_step) {
    load_left(left);
    load_right(right);
    multiply_tiles();
    load_right(right + part);
    multiply_tiles();
  }
  store_sums(c, ldc);
}

// ---- packing of heads: rows of d elements, `ld` apart, filled up with zeros

// Rows as strips of the left operand over d.
static void pack_rows_left(std::uint32_t rows, std::uint32_t d, const Bf16* at, std::uint64_t ld,
                           std::uint16_t* to) {
  for (std::uint32_t i = 0; i < rows; i += kStrip, to += kStrip * kStrip * strips(d))
    pack_left_as(rows - i, d, at + i * ld, ld, false, to);
}
// Columns as strips of the left operand over rows.
static void pack_columns_left(std::uint32_t rows, std::uint32_t d, const Bf16* at, std::uint64_t ld,
                              std::uint16_t* to) {
  for (std::uint32_t j = 0; j < d; j += kStrip, to += kStrip * kStrip * strips(rows))
    pack_left_as(d - j, rows, at + j, ld, true, to);
}
// Rows as panels of the right operand over d.
static void pack_rows_right(std::uint32_t rows, std::uint32_t d, const Bf16* at, std::uint64_t ld,
                            std::uint16_t* to) {
  for (std::uint32_t i = 0; i < rows; i += kStrip, to += kStrip * kStrip * strips(d))
    pack_right_as(rows - i, d, at + i * ld, ld, false, to);
}
// Columns as panels of the right operand over rows, with the pairs (i, i + 16) of each 32 rows: the order in
// which merge() packs the queries of two vectors.
static void pack_columns_right(std::uint32_t rows, std::uint32_t d, const Bf16* at, std::uint64_t ld,
                               std::uint16_t* to) {
  for (std::uint32_t j = 0; j < d; j += 32)
    for (std::uint32_t r = 0; r < rows; r += 32)
      for (std::uint32_t i = 0; i < 16; ++i, to += 64)
        for (std::uint32_t half = 0; half < 32; half += 16) {
          const std::uint32_t row = r + i, column = j + half;
          const __mmask16 mask = column < d ? first(d - column) : __mmask16(0);
          const Bf16* const low = at + row * ld + column;
          _mm512_storeu_si512(to + half * 2,
                              row < rows && mask
                                  ? pairs_of_rows(low, row + 16 < rows ? low + 16 * ld : nullptr, mask)
                                  : _mm512_setzero_si512());
        }
}

// ---- masks

// The first key that each of `count` queries from q0 on attends to; queries from `end` on attend to none.
static void first_keys(const Bf16Attention& s, std::uint32_t q0, std::uint32_t count, std::uint32_t end,
                       std::int32_t* to) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t q = q0 + i;
    std::int32_t key = s.window && q + 1 > s.window ? std::int32_t(q + 1 - s.window) : 0;
    if (q < end && s.starts && s.starts[q] > key) key = s.starts[q];
    to[i] = q < end ? key : 0x7fffffff;
  }
}
// The queries of a vector and the keys that they attend to.
struct Queries {
  __m512i position, first_key;
  static Queries at(std::uint32_t q0, const std::int32_t* first_keys) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return {_mm512_add_epi32(_mm512_set1_epi32(int(q0)), lanes), _mm512_loadu_si512(first_keys)};
  }
  __mmask16 see(std::uint32_t key) const {
    const __m512i k = _mm512_set1_epi32(int(key));
    return _mm512_cmple_epi32_mask(k, position) & _mm512_cmpge_epi32_mask(k, first_key);
  }
};
// True if all 32 queries from q0 on attend to all 32 keys from k0 on.
static inline bool all_visible(std::uint32_t q0, const std::int32_t* first_keys, std::uint32_t k0) {
  return k0 + kStrip - 1 <= q0 && first_keys[kStrip - 1] <= std::int32_t(k0);
}

// ---- forward

// Running state of 32 queries: maximum, sum, and whether outputs have been written.
struct Panel {
  float top[kStrip], total[kStrip];
  bool started;
};

// Maxima of a strip of scores [32 keys][32 queries].
template <bool kMasked>
static inline __attribute__((always_inline)) void strip_max(const float* s, std::uint32_t k0,
                                                            const Queries q[2], __m512 top[2]) {
  for (std::uint32_t k = 0; k < kStrip; ++k)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const __m512 x = _mm512_loadu_ps(s + k * kStrip + 16 * v);
      top[v] = kMasked ? _mm512_mask_max_ps(top[v], q[v].see(k0 + k), top[v], x)
                       : _mm512_maskz_max_ps(0xffff, top[v], x);
    }
}
// Probabilities 2^(s * scale - shift) of a strip, in two parts as an inner block of a right operand; their
// sums are added to `total`.
template <bool kMasked>
static inline __attribute__((always_inline)) void strip_exp(const float* s, std::uint32_t k0,
                                                            const Queries q[2], __m512 scale,
                                                            const __m512 shift[2], __m512 total[2],
                                                            std::uint16_t* hi, std::uint16_t* lo) {
  for (std::uint32_t k = 0; k < kStrip; k += 2, hi += 64, lo += 64)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      __m512 a = power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(s + k * kStrip + 16 * v), scale, shift[v])),
             b = power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(s + (k + 1) * kStrip + 16 * v), scale, shift[v]));
      if (kMasked) {
        a = _mm512_maskz_mov_ps(q[v].see(k0 + k), a);
        b = _mm512_maskz_mov_ps(q[v].see(k0 + k + 1), b);
      }
      total[v] += a + b;
      _mm512_storeu_si512(hi + 32 * v, merge(a, b));
      _mm512_storeu_si512(lo + 32 * v, merge(rest(a), rest(b)));
    }
}

// Softmax of the strips [begin, end) of the scores of 32 queries. Outputs [d][32 queries] and sums are
// rescaled only if a maximum grew by more than 2^8: until then f32 has the range for probabilities above 1.
static void softmax_panel(const Bf16Attention& s, const float* scores, std::uint32_t begin, std::uint32_t end,
                          std::uint32_t k0, std::uint32_t q0, const std::int32_t* keys, Panel& panel,
                          float* outputs, std::uint32_t d, std::uint16_t* hi, std::uint16_t* lo) {
  constexpr std::uint32_t kScores = kStrip * kStrip;
  const Queries q[2] = {Queries::at(q0, keys), Queries::at(q0 + 16, keys + 16)};
  const __m512 scale = _mm512_set1_ps(s.scale * kLog2E), most = _mm512_set1_ps(8.0f);
  __m512 before[2], top[2], total[2], shift[2];
  for (int v = 0; v < 2; ++v) {
    before[v] = top[v] = panel.started ? _mm512_loadu_ps(panel.top + 16 * v) : _mm512_set1_ps(kLowest);
    total[v] = panel.started ? _mm512_loadu_ps(panel.total + 16 * v) : _mm512_setzero_ps();
  }
  for (std::uint32_t i = begin; i < end; ++i) {
    if (all_visible(q0, keys, k0 + i * kStrip))
      strip_max<false>(scores + i * kScores, k0 + i * kStrip, q, top);
    else
      strip_max<true>(scores + i * kScores, k0 + i * kStrip, q, top);
  }
  for (int v = 0; v < 2; ++v) {
    const __m512 growth = (top[v] - before[v]) * scale;
    if (_mm512_cmp_ps_mask(growth, most, _CMP_NLE_UQ)) {
      if (panel.started) {
        const __m512 shrink = power_of_2(-growth);
        total[v] *= shrink;
        for (std::uint32_t j = 0; j < d; ++j) {
          float* const o = outputs + j * kStrip + 16 * v;
          _mm512_storeu_ps(o, _mm512_loadu_ps(o) * shrink);
        }
      }
    } else {
      top[v] = before[v];
    }
    shift[v] = top[v] * scale;
  }
  for (std::uint32_t i = begin; i < end; ++i) {
    if (all_visible(q0, keys, k0 + i * kStrip))
      strip_exp<false>(scores + i * kScores, 0, q, scale, shift, total, hi + i * kScores, lo + i * kScores);
    else
      strip_exp<true>(scores + i * kScores, k0 + i * kStrip, q, scale, shift, total, hi + i * kScores,
                      lo + i * kScores);
  }
  for (int v = 0; v < 2; ++v)
    _mm512_storeu_ps(panel.top + 16 * v, top[v]), _mm512_storeu_ps(panel.total + 16 * v, total[v]);
}

// rows <= 16 rows of d bf16 elements from [d][ld] f32, times a factor of each row.
static void store_transposed(std::uint32_t rows, std::uint32_t d, const float* from, std::uint64_t ld,
                             __m512 factor, Bf16* to, std::uint64_t ld_to) {
  for (std::uint32_t j = 0; j < d; j += 16) {
    __m512i r[16];
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 16; ++i) r[i] = (__m512i)(_mm512_loadu_ps(from + (j + i) * ld) * factor);
    transpose(r);
    const __mmask16 mask = first(d - j);
    // Through memory: the rows are indexed at run time.
    alignas(64) float row[16][16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(row[i], r[i]);
    for (std::uint32_t i = 0; i < rows; ++i)
      _mm256_mask_storeu_epi16(to + i * ld_to + j, mask, (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(row[i])));
  }
}

// Divides memory into parts of whole cache lines. A number, since from 0 on it counts the bytes of all parts.
struct Memory {
  std::uintptr_t at;
  template <class T>
  T* take(std::uint64_t count) {
    T* const part = reinterpret_cast<T*>(at);
    at += (count * sizeof(T) + 63) / 64 * 64;
    return part;
  }
};

static void forward(const Bf16Attention& s, const Bf16* q, const Bf16* k, const Bf16* v,
                    std::uint32_t q_begin, std::uint32_t q_end, Bf16* o, float* lse, void* memory) {
  begin_blocks();
  const std::uint32_t blocks = strips(s.d), wide = blocks * kStrip, queries = q_end - q_begin,
                      panels = strips(queries);
  constexpr std::uint32_t kMaxPanels = kBf16AttentionQueries / kStrip, kKeyStrips = kForwardKeys / kStrip;
  Memory m{reinterpret_cast<std::uintptr_t>(memory)};
  auto* const packed_q = m.take<std::uint16_t>(std::uint64_t{panels} * kStrip * wide);
  auto* const packed_k = m.take<std::uint16_t>(std::uint64_t{kForwardKeys} * wide);
  auto* const packed_v = m.take<std::uint16_t>(std::uint64_t{kForwardKeys} * wide);
  auto* const outputs = m.take<float>(std::uint64_t{panels} * kStrip * wide);  // [panel][d][32]
  auto* const scores = m.take<float>(kForwardKeys * kStrip);
  auto* const hi = m.take<std::uint16_t>(2 * kForwardKeys * kStrip);
  Panel state[kMaxPanels];
  std::int32_t keys[kMaxPanels * kStrip];
  for (std::uint32_t p = 0; p < panels; ++p) state[p].started = false;
  first_keys(s, q_begin, panels * kStrip, q_end, keys);
  pack_rows_right(queries, s.d, q + q_begin * s.ld, s.ld, packed_q);
  for (std::uint32_t k0 = std::uint32_t(keys[0]) / kStrip * kStrip; k0 < q_end; k0 += kForwardKeys) {
    const std::uint32_t count = least(kForwardKeys, q_end - k0), key_strips = strips(count);
    pack_rows_left(count, s.d, k + k0 * s.ld, s.ld, packed_k);
    pack_columns_left(count, s.d, v + k0 * s.ld, s.ld, packed_v);
    for (std::uint32_t p = k0 <= q_begin ? 0 : (k0 - q_begin) / kStrip; p < panels; ++p) {
      const std::uint32_t q0 = q_begin + p * kStrip;
      const auto lowest = std::uint32_t(keys[p * kStrip]);
      if (lowest >= k0 + count) break;  // as do all later queries
      const std::uint32_t begin = lowest > k0 ? (lowest - k0) / kStrip : 0,
                          end = least(key_strips, strips(least(q0 + kStrip, q_end) - k0));
      float* const to = outputs + p * kStrip * wide;
      for (std::uint32_t i = begin; i < end; ++i)
        block_product(false, scores + i * kStrip * kStrip, kStrip, packed_k + i * kStrip * wide, 1024,
                      packed_q + p * kStrip * wide, 1024, blocks);
      softmax_panel(s, scores, begin, end, k0, q0, keys + p * kStrip, state[p], to, wide, hi,
                    hi + kForwardKeys * kStrip);
      for (std::uint32_t j = 0; j < blocks; ++j)
        split_right_product(state[p].started, to + j * kStrip * kStrip, kStrip,
                            packed_v + (j * key_strips + begin) * 1024, 1024, hi + begin * 1024,
                            kForwardKeys * kStrip, 1024, end - begin);
      state[p].started = true;
    }
  }
  static_assert(kKeyStrips * kStrip == kForwardKeys);
  finish_stores();
  for (std::uint32_t i = 0; i < queries; i += 16) {
    const Panel& p = state[i / kStrip];
    const __m512 total = _mm512_loadu_ps(p.total + i % kStrip);
    store_transposed(least(16, queries - i), s.d, outputs + i / kStrip * kStrip * wide + i % kStrip, kStrip,
                     _mm512_set1_ps(1.0f) / total, o + (q_begin + i) * s.ld_o, s.ld_o);
    for (std::uint32_t r = i; r < least(i + 16, queries); ++r)
      lse[std::uint64_t{q_begin + r} * s.ld_lse] =
          p.top[r % kStrip] * s.scale + float(log(double(p.total[r % kStrip])));
  }
  end_blocks();
}

}  // namespace attention
