// Packing with AVX512_BF16, shared by its own products and those of AMX. Included inside a namespace; see
// bf16.hpp for the layouts. A unit of work is 32 rows or columns by 32 inner elements.
#pragma once

// The pairs (low[i], high[i]) as 16 words.
static inline __attribute__((always_inline)) __m512i pairs_of(__m512 low, __m512 high) {
  const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                              23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

// Transposes 16 x 16 words: pairs of rows are interleaved by words, then by pairs of words, then by 128-bit
// lanes.
static inline __attribute__((always_inline)) void transpose(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// Mask of the first n of 16 lanes.
static inline __attribute__((always_inline)) __mmask16 first(std::uint64_t n) {
  return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1);
}
// n - at, at least 0.
static inline std::uint64_t remaining(std::uint64_t n, std::uint64_t at) { return n > at ? n - at : 0; }

// 16 words from p on, of which those in the mask are read; the others are 0. f32 is rounded.
static inline __attribute__((always_inline)) __m512i row_words(const float* p, __mmask16 low,
                                                               __mmask16 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high ? _mm512_maskz_loadu_ps(high, p + 16) : _mm512_setzero_ps(),
                                      _mm512_maskz_loadu_ps(low, p));
}
static inline __attribute__((always_inline)) __m512i row_words(const std::uint16_t* p, __mmask16 low,
                                                               __mmask16 high) {
  return _mm512_maskz_loadu_epi16(__mmask32(low) | __mmask32(high) << 16, p);
}
// The pairs (a[i], b[i]); b may be null.
static inline __attribute__((always_inline)) __m512i pairs_of_rows(const float* a, const float* b,
                                                                   __mmask16 mask) {
  return pairs_of(_mm512_maskz_loadu_ps(mask, a), b ? _mm512_maskz_loadu_ps(mask, b) : _mm512_setzero_ps());
}
static inline __attribute__((always_inline)) __m512i pairs_of_rows(const std::uint16_t* a,
                                                                   const std::uint16_t* b, __mmask16 mask) {
  const __m512i low = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, a));
  if (!b) return low;
  return _mm512_or_si512(
      low, _mm512_slli_epi32(_mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, b)), 16));
}

// Up to 16 rows of 32 inner elements each, as words of pairs: row i in out[i].
template <class T>
static inline __attribute__((always_inline)) void rows_of_pairs(std::uint64_t rows, std::uint64_t inner,
                                                                const T* at, std::uint64_t ld,
                                                                __m512i out[16]) {
  const __mmask16 low = first(inner), high = first(remaining(inner, 16));
#pragma GCC unroll 16
  for (std::uint64_t i = 0; i < 16; ++i)
    out[i] = i < rows ? row_words(at + i * ld, low, high) : _mm512_setzero_si512();
}
// The same if the rows of an inner element are contiguous: pair p of all 16 rows in out[p].
template <class T>
static inline __attribute__((always_inline)) void pairs_by_inner(std::uint64_t rows, std::uint64_t inner,
                                                                 const T* at, std::uint64_t ld,
                                                                 __m512i out[16]) {
  const __mmask16 mask = first(rows);
#pragma GCC unroll 16
  for (std::uint64_t p = 0; p < 16; ++p)
    out[p] = 2 * p < inner
                 ? pairs_of_rows(at + 2 * p * ld, 2 * p + 1 < inner ? at + (2 * p + 1) * ld : nullptr, mask)
                 : _mm512_setzero_si512();
}

// The pairs (2p, 2p + 1) of 32 inner elements of 32 rows or columns that are contiguous: whole cache lines
// are read, because lines that are a multiple of 4 KiB apart do not stay in the L1 cache for a second visit.
// low[p] has the pairs of the columns 0-3, 8-11, 16-19 and 24-27, high[p] the others.
static inline __attribute__((always_inline)) void pairs_of_lines(std::uint64_t inner, const std::uint16_t* at,
                                                                 std::uint64_t ld, __m512i low[16],
                                                                 __m512i high[16]) {
  for (std::uint64_t p = 0; p < 16; ++p) {
    const __m512i a = 2 * p < inner ? _mm512_loadu_si512(at + 2 * p * ld) : _mm512_setzero_si512(),
                  b = 2 * p + 1 < inner ? _mm512_loadu_si512(at + (2 * p + 1) * ld) : _mm512_setzero_si512();
    low[p] = _mm512_unpacklo_epi16(a, b), high[p] = _mm512_unpackhi_epi16(a, b);
  }
}
// 32 x 32 elements of an operand whose inner elements are rows, by whole cache lines; returns false for f32,
// which is packed element by element.
static inline bool pack_left_lines(std::uint64_t, const float*, std::uint64_t, std::uint16_t*) {
  return false;
}
static inline bool pack_left_lines(std::uint64_t inner, const std::uint16_t* at, std::uint64_t ld,
                                   std::uint16_t* to) {
  __m512i pairs[2][16];
  pairs_of_lines(inner, at, ld, pairs[0], pairs[1]);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = pairs[h][i];
    transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + (i / 4 * 8 + h * 4 + i % 4) * 32, r[i]);
  }
  return true;
}
static inline bool pack_right_lines(std::uint64_t, const float*, std::uint64_t, std::uint16_t*) {
  return false;
}
static inline bool pack_right_lines(std::uint64_t inner, const std::uint16_t* at, std::uint64_t ld,
                                    std::uint16_t* to) {
  const __m512i first_half = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                second_half = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  __m512i low[16], high[16];
  pairs_of_lines(inner, at, ld, low, high);
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) {
    _mm512_storeu_si512(to + p * 64, _mm512_permutex2var_epi64(low[p], first_half, high[p]));
    _mm512_storeu_si512(to + p * 64 + 32, _mm512_permutex2var_epi64(low[p], second_half, high[p]));
  }
  return true;
}

template <class T>
static void pack_left_as(std::uint64_t count, std::uint64_t k, const T* at, std::uint64_t ld,
                         bool inner_is_row, std::uint16_t* to) {
  for (std::uint64_t p = 0; p < k; p += 32) {
    if (inner_is_row && count >= 32 && pack_left_lines(k - p, at + p * ld, ld, to)) {
      to += 1024;
      continue;
    }
    for (std::uint64_t i = 0; i < 32; i += 16, to += 512) {
      __m512i r[16];
      if (count <= i) {
        for (auto& v : r) v = _mm512_setzero_si512();
      } else if (inner_is_row) {
        pairs_by_inner(count - i, k - p, at + p * ld + i, ld, r);
        transpose(r);
      } else {
        rows_of_pairs(count - i, k - p, at + i * ld + p, ld, r);
      }
#pragma GCC unroll 16
      for (int v = 0; v < 16; ++v) _mm512_storeu_si512(to + v * 32, r[v]);
    }
  }
}

template <class T>
static void pack_right_as(std::uint64_t count, std::uint64_t k, const T* at, std::uint64_t ld,
                          bool inner_is_row, std::uint16_t* to) {
  for (std::uint64_t p = 0; p < k; p += 32, to += 1024) {
    if (inner_is_row && count >= 32 && pack_right_lines(k - p, at + p * ld, ld, to)) continue;
    for (std::uint64_t j = 0; j < 32; j += 16) {
      __m512i r[16];
      if (count <= j) {
        for (auto& v : r) v = _mm512_setzero_si512();
      } else if (inner_is_row) {
        pairs_by_inner(count - j, k - p, at + p * ld + j, ld, r);
      } else {
        rows_of_pairs(count - j, k - p, at + j * ld + p, ld, r);
        transpose(r);
      }
#pragma GCC unroll 16
      for (int v = 0; v < 16; ++v) _mm512_storeu_si512(to + v * 64 + j * 2, r[v]);
    }
  }
}

static void pack_left(std::uint64_t count, std::uint64_t k, const void* at, bool bf16, std::uint64_t ld,
                      bool inner_is_row, void* to) {
  if (bf16)
    pack_left_as(count, k, static_cast<const std::uint16_t*>(at), ld, inner_is_row,
                 static_cast<std::uint16_t*>(to));
  else
    pack_left_as(count, k, static_cast<const float*>(at), ld, inner_is_row, static_cast<std::uint16_t*>(to));
}
static void pack_right(std::uint64_t count, std::uint64_t k, const void* at, bool bf16, std::uint64_t ld,
                       bool inner_is_row, void* to) {
  if (bf16)
    pack_right_as(count, k, static_cast<const std::uint16_t*>(at), ld, inner_is_row,
                  static_cast<std::uint16_t*>(to));
  else
    pack_right_as(count, k, static_cast<const float*>(at), ld, inner_is_row, static_cast<std::uint16_t*>(to));
}

constexpr std::uint64_t kBlock = 32;
typedef std::uint16_t Element;
static inline std::uint64_t packed_inner(std::uint64_t k) {
  return (k + kBf16InnerUnit - 1) / kBf16InnerUnit * kBf16InnerUnit;
}
