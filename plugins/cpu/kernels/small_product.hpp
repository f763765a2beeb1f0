// Matrix products for shapes for which OpenBLAS is slow. A register tile of rows x NV vectors iterates over
// the inner dimension, kProductInner elements at a time, so that a panel of the right operand stays in the L1
// cache. Part of kernels_isa.cpp; shapes and meanings: kernel_table.hpp. Sums run over the inner dimension in
// order with one accumulator per element, so the bits of an element do not depend on its tile.
#pragma once

#if defined(__AVX512F__)
constexpr int kRows1 = 12, kRows2 = 12, kRows3 = 8;  // 32 registers: accumulators, NV of b, one of a
#else
constexpr int kRows1 = 8, kRows2 = 6, kRows3 = 4;  // 16 registers
#endif

// C[MR, NV*kLanes] (+)= sum over p of a[i * ai + p * ap] * b[p * ldb + :]. `last`: elements of the last
// vector.
template <int MR, int NV, bool kPart>
TH_INLINE void register_tile(std::uint64_t k, const float* a, std::uint64_t ai, std::uint64_t ap,
                             const float* b, std::uint64_t ldb, bool add, float* c, std::uint64_t ldc,
                             std::uint64_t last) {
  Vec acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      const float* from = c + i * ldc + j * kLanes;
      acc[i][j] = !add ? Vec{} : kPart && j == NV - 1 ? load_part(from, last) : load(from);
    }
  // Two pointers for the rows of a: with one, the distances of 12 rows need more registers than there are.
  constexpr int kHalf = (MR + 1) / 2;
  const float* half = a + kHalf * ai;
  for (std::uint64_t p = 0; p < k; ++p) {
    Vec bv[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j)
      bv[j] = kPart && j == NV - 1 ? load_part(b + j * kLanes, last) : load(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      Vec av = splat(i < kHalf ? a[i * ai] : half[(i - kHalf) * ai]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = av * bv[j] + acc[i][j];
    }
    a += ap;
    half += ap;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      float* to = c + i * ldc + j * kLanes;
      if (kPart && j == NV - 1)
        store_part(to, acc[i][j], last);
      else
        store(to, acc[i][j]);
    }
}

// The left operand: element (row, inner) is at[row * ai + inner * ap].
struct Left {
  const float* at;
  std::uint64_t ai, ap;
};

// Multiplies all rows with one panel of NV vectors of columns: tiles of MR rows, then smaller ones for the
// rest.
template <int MR, int NV, bool kPart>
static __attribute__((noinline)) void panel(std::uint64_t m, std::uint64_t k, Left a, const float* b,
                                            std::uint64_t ldb, bool add, float* c, std::uint64_t ldc,
                                            std::uint64_t last) {
  std::uint64_t i = 0;
  // Of tiles of 6 rows the last 8 rows are two tiles of 4: a row alone has too few sums for the latency of FMA.
  for (; i + MR <= m && !(MR == 6 && m - i == 8); i += MR)
    register_tile<MR, NV, kPart>(k, a.at + i * a.ai, a.ai, a.ap, b, ldb, add, c + i * ldc, ldc, last);
  if constexpr (MR > 8)
    for (; i + 8 <= m; i += 8)
      register_tile<8, NV, kPart>(k, a.at + i * a.ai, a.ai, a.ap, b, ldb, add, c + i * ldc, ldc, last);
  if constexpr (MR > 4)
    for (; i + 4 <= m; i += 4)
      register_tile<4, NV, kPart>(k, a.at + i * a.ai, a.ai, a.ap, b, ldb, add, c + i * ldc, ldc, last);
  for (; i < m; ++i)
    register_tile<1, NV, kPart>(k, a.at + i * a.ai, a.ai, a.ap, b, ldb, add, c + i * ldc, ldc, last);
}

// panel() for a number of columns that is not known at compile time; at most three vectors.
TH_INLINE void multiply_panel(std::uint64_t columns, std::uint64_t m, std::uint64_t k, Left a, const float* b,
                              std::uint64_t ldb, bool add, float* c, std::uint64_t ldc) {
  const int nv = static_cast<int>((columns + kLanes - 1) / kLanes);
  const std::uint64_t last = columns % kLanes;
  if (last == 0) {
    if (nv == 3)
      panel<kRows3, 3, false>(m, k, a, b, ldb, add, c, ldc, 0);
    else if (nv == 2)
      panel<kRows2, 2, false>(m, k, a, b, ldb, add, c, ldc, 0);
    else
      panel<kRows1, 1, false>(m, k, a, b, ldb, add, c, ldc, 0);
  } else {
    if (nv == 3)
      panel<kRows3, 3, true>(m, k, a, b, ldb, add, c, ldc, last);
    else if (nv == 2)
      panel<kRows2, 2, true>(m, k, a, b, ldb, add, c, ldc, last);
    else
      panel<kRows1, 1, true>(m, k, a, b, ldb, add, c, ldc, last);
  }
}

// Width of every panel but the last of a matrix with n columns: three vectors if n divides evenly, else two.
static std::uint64_t panel_width(std::uint64_t n) {
  const std::uint64_t v = (n + kLanes - 1) / kLanes;
  return (v % 3 == 0 ? 3 : v == 1 ? 1 : 2) * kLanes;
}

// Rows that are a multiple of 512 bytes apart use only a few sets of the L1 cache and evict each other. Such
// operands are copied to rows that are an odd number of cache lines apart.
TH_INLINE bool shares_cache_sets(std::uint64_t ld) { return ld % 128 == 0; }
TH_INLINE std::uint64_t conflict_free_ld(std::uint64_t columns) { return ((columns + 15) / 16 | 1) * 16; }

// The hardware does not prefetch short rows that are far apart, so this prefetches a few rows ahead.
template <class T>
static void copy_rows(std::uint64_t rows, std::uint64_t columns, const T* from, std::uint64_t ld, float* to,
                      std::uint64_t ld_to) {
  constexpr std::uint64_t kAhead = 8;
  for (std::uint64_t r = 0; r < rows; ++r, from += ld, to += ld_to) {
    if (r + kAhead < rows)
      for (std::uint64_t j = 0; j < columns; j += 16) __builtin_prefetch(from + kAhead * ld + j);
    std::uint64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) store(to + j, load(from + j));
    if (j < columns) store_part(to + j, load_part(from + j, columns - j), columns - j);
  }
}

// Kernels::product. Inner elements are processed kProductInner at a time, so that the parts of both operands
// stay in the L1 cache; later parts add to C.
static void product(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda,
                    bool transposed, const float* b, std::uint64_t ldb, bool add, float* c, std::uint64_t ldc,
                    float* work) {
  const std::uint64_t width = panel_width(n);
  const bool copy_a = transposed && shares_cache_sets(lda) && m <= kProductSide && n >= width;
  const bool copy_b = shares_cache_sets(ldb) && n <= kProductSide && m >= 24;
  float *work_a = work, *work_b = work + kProductInner * conflict_free_ld(kProductSide);
  for (std::uint64_t p = 0; p < k; p += kProductInner) {
    const std::uint64_t inner = k - p < kProductInner ? k - p : kProductInner;
    Left left = transposed ? Left{a + p * lda, 1, lda} : Left{a + p, lda, 1};
    if (copy_a) {
      copy_rows(inner, m, left.at, lda, work_a, conflict_free_ld(m));
      left = {work_a, 1, conflict_free_ld(m)};
    }
    const float* right = b + p * ldb;
    std::uint64_t ld = ldb;
    if (copy_b) {
      copy_rows(inner, n, right, ldb, work_b, conflict_free_ld(n));
      right = work_b, ld = conflict_free_ld(n);
    }
    for (std::uint64_t j = 0; j < n; j += width)
      multiply_panel(n - j < width ? n - j : width, m, inner, left, right + j, ld, add || p, c + j, ldc);
  }
}

// ---- transposed right operand

// Rows a and b of a perfect shuffle: a0 b0 a1 b1 ...; log2(kLanes) rounds of it over kLanes rows transpose a
// square.
#if defined(__AVX512F__)
TH_INLINE Vec shuffle_low(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
TH_INLINE Vec shuffle_high(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
constexpr int kRounds = 4;
#elif defined(__AVX2__)
TH_INLINE Vec shuffle_low(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
TH_INLINE Vec shuffle_high(Vec a, Vec b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
constexpr int kRounds = 3;
#else
TH_INLINE Vec shuffle_low(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
TH_INLINE Vec shuffle_high(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
constexpr int kRounds = 2;
#endif

// dst[p * ld + j] = src[j * lds + p] for j < rows <= kLanes (the rest zero), p < cols <= kLanes.
template <class T>
TH_INLINE void transpose_square(std::uint64_t rows, std::uint64_t cols, const T* src, std::uint64_t lds,
                                float* dst, std::uint64_t ld) {
  Vec r[kLanes], t[kLanes];
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j)
    r[j] = static_cast<std::uint64_t>(j) >= rows ? Vec{}
           : cols == kLanes                      ? load(src + j * lds)
                                                 : load_part(src + j * lds, cols);
#pragma GCC unroll 4
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      t[2 * i] = shuffle_low(r[i], r[i + kLanes / 2]);
      t[2 * i + 1] = shuffle_high(r[i], r[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) r[i] = t[i];
  }
  if (cols == kLanes) {
#pragma GCC unroll 16
    for (int p = 0; p < kLanes; ++p) store(dst + p * ld, r[p]);
  } else {
    for (std::uint64_t p = 0; p < cols; ++p) store(dst + p * ld, r[p]);
  }
}

template <class T>
static void pack_transposed(std::uint64_t n, std::uint64_t k, const T* w, std::uint64_t ldw,
                            std::uint64_t width, float* packed) {
  for (std::uint64_t j = 0; j < n; j += width, packed += width * k) {
    const std::uint64_t present = n - j < width ? n - j : width;
    for (std::uint64_t i = 0; i < present; i += kLanes) {
      const std::uint64_t rows = present - i < kLanes ? present - i : kLanes;
      for (std::uint64_t p = 0; p < k; p += kLanes)
        transpose_square(rows, k - p < kLanes ? k - p : kLanes, w + (j + i) * ldw + p, ldw,
                         packed + p * width + i, width);
    }
  }
}

template <class T>
static void pack(std::uint64_t n, std::uint64_t k, const T* b, std::uint64_t ldb, std::uint64_t width,
                 float* packed) {
  for (std::uint64_t j = 0; j < n; j += width, packed += width * k)
    copy_rows(k, n - j < width ? n - j : width, b + j, ldb, packed, width);
}

// The longer of n and k is the outer loop, so that the tile of C, or of A, stays in a near cache.
static void product_packed(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a,
                           std::uint64_t lda, const float* packed, std::uint64_t packed_k,
                           std::uint64_t width, bool add, float* c, std::uint64_t ldc) {
  auto block = [&](std::uint64_t j, std::uint64_t p) {
    multiply_panel(n - j < width ? n - j : width, m, k - p < kProductInner ? k - p : kProductInner,
                   {a + p, lda, 1}, packed + j * packed_k + p * width, width, add || p, c + j, ldc);
  };
  if (n >= k) {
    for (std::uint64_t j = 0; j < n; j += width)
      for (std::uint64_t p = 0; p < k; p += kProductInner) block(j, p);
  } else {
    for (std::uint64_t p = 0; p < k; p += kProductInner)
      for (std::uint64_t j = 0; j < n; j += width) block(j, p);
  }
}
