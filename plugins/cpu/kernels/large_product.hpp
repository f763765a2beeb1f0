// Matrix products of large shapes. The right operand is packed into panels that stay in the L2 cache; the
// left one is packed a group of rows at a time, and a strip of it stays in the L1 cache while it is
// multiplied with every panel. Part of kernels_isa.cpp, after small_product.hpp; shapes and meanings:
// kernel_table.hpp. Each element is a sum over the inner elements in order that is then added to C, so its
// bits do not depend on the tile that it is in.
#pragma once

#if defined(__AVX512F__)
constexpr int kLargeRows = 12, kLargeVectors = 2;  // 32 registers: 24 sums, 2 of a panel, one of a strip
#elif defined(__AVX2__)
constexpr int kLargeRows = 6, kLargeVectors = 2;  // 16 registers: 12 sums, 2, one
#else
constexpr int kLargeRows = 4, kLargeVectors = 2;
#endif
constexpr int kLargeCols = kLargeVectors * kLanes;
static_assert(kLargeGroup % kLargeRows == 0 && kLargeRowStep % kLargeRows == 0 &&
              kLargeColumnStep % kLargeCols == 0);

// An operand: element (i, p) is at[i * ld + p], or at[p * ld + i] if inner_is_row; p is the inner element.
struct Operand {
  const float* at;
  std::uint64_t ld;
  bool inner_is_row;
};
TH_INLINE Operand rows_from(const Operand& o, std::uint64_t i) {
  return {o.at + (o.inner_is_row ? i : i * o.ld), o.ld, o.inner_is_row};
}

// Cache lines of the next group of rows. They are fetched into the L2 cache between the tiles of the current
// group.
TH_INLINE std::uint64_t lines_of_group(const Operand& a, std::uint64_t rows, std::uint64_t k) {
  return a.inner_is_row ? k * (kLargeGroup / 16) : (k + 15) / 16 * rows;
}
TH_INLINE void fetch_lines(const Operand& a, std::uint64_t k, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t per_row = a.inner_is_row ? kLargeGroup / 16 : (k + 15) / 16;
  for (std::uint64_t l = begin; l < end; ++l)
    __builtin_prefetch(a.at + l / per_row * a.ld + l % per_row * 16, 0, 2);
}

// Sums of one register tile over k inner elements, then C = sums (+ C). rows, cols: the part of C that
// exists.
TH_INLINE void large_tile(std::uint64_t k, const float* strip, const float* panel, bool add, float* c,
                          std::uint64_t ldc, std::uint64_t rows, std::uint64_t cols) {
  constexpr int kAhead = 8;  // inner elements of the panel that are fetched ahead from the L2 cache
  Vec acc[kLargeRows][kLargeVectors] = {};
#pragma GCC unroll 16
  for (int i = 0; i < kLargeRows; ++i) {  // C is needed after the sums
    const float* row = c + (static_cast<std::uint64_t>(i) < rows ? static_cast<std::uint64_t>(i) * ldc : 0);
    __builtin_prefetch(row, 1);
    __builtin_prefetch(row + kLargeCols - 1, 1);
  }
#pragma GCC unroll 4
  for (std::uint64_t p = 0; p < k; ++p) {
    Vec b[kLargeVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kLargeCols; j += 16) __builtin_prefetch(panel + kAhead * kLargeCols + j);
#pragma GCC unroll 4
    for (int j = 0; j < kLargeVectors; ++j) b[j] = load(panel + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kLargeRows; ++i) {
      const Vec a = splat(strip[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kLargeVectors; ++j) acc[i][j] = a * b[j] + acc[i][j];
    }
    strip += kLargeRows;
    panel += kLargeCols;
  }
  if (rows >= kLargeRows && cols >= kLargeCols) {
#pragma GCC unroll 16
    for (int i = 0; i < kLargeRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kLargeVectors; ++j) {
        float* to = c + static_cast<std::uint64_t>(i) * ldc + j * kLanes;
        store(to, add ? load(to) + acc[i][j] : acc[i][j]);
      }
    return;
  }
  float sums[kLargeRows * kLargeCols];
#pragma GCC unroll 16
  for (int i = 0; i < kLargeRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kLargeVectors; ++j) store(sums + i * kLargeCols + j * kLanes, acc[i][j]);
  for (std::uint64_t i = 0; i < rows && i < kLargeRows; ++i)
    for (std::uint64_t j = 0; j < cols && j < kLargeCols; ++j) {
      const float sum = sums[i * kLargeCols + j];
      c[i * ldc + j] = add ? c[i * ldc + j] + sum : sum;
    }
}

// ---- packing into [ceil(count / kWidth)][k][kWidth]; rows beyond `count` are zeros

// One strip or panel, by transposing squares.
template <int kWidth>
TH_INLINE void pack_by_transposing(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                                   float* to) {
  constexpr std::uint64_t kAhead = 64;  // elements of every row
  constexpr std::uint64_t kSquare = kWidth < kLanes ? kWidth : kLanes;
#pragma GCC unroll 4
  for (std::uint64_t i = 0; i < kWidth; i += kLanes) {
    const std::uint64_t rows = count <= i ? 0 : count - i < kSquare ? count - i : kSquare;
    const float* from = at + i * ld;
    // A strip can be narrower than a vector. Its rows are stored in order, so each overwrites the zeros that
    // the row before has stored behind its end. kLargeSlack floats follow the last strip.
    std::uint64_t p = 0;
    for (; p + kLanes <= k; p += kLanes) {
      if (p % 16 == 0)
        for (std::uint64_t r = 0; r < rows; ++r) __builtin_prefetch(from + r * ld + p + kAhead);
      if (rows == kSquare)
        transpose_square(kSquare, kLanes, from + p, ld, to + p * kWidth + i, kWidth);
      else
        transpose_square(rows, kLanes, from + p, ld, to + p * kWidth + i, kWidth);
    }
    if (p < k) transpose_square(rows, k - p, from + p, ld, to + p * kWidth + i, kWidth);
  }
}

// All strips or panels: an inner element is a row of the source, which is read once and divided among them.
template <int kWidth>
TH_INLINE void pack_by_copying(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                               float* to) {
  constexpr std::uint64_t kAhead = 8;  // rows
  for (std::uint64_t p = 0; p < k; ++p, at += ld, to += kWidth) {
    if (p + kAhead < k)
      for (std::uint64_t i = 0; i < count; i += 16) __builtin_prefetch(at + kAhead * ld + i);
    std::uint64_t i = 0;
    // Of constant size: the compiler emits loads and stores. Masked stores are slow on AMD's AVX2.
    for (; i + kWidth <= count; i += kWidth) __builtin_memcpy(to + i * k, at + i, kWidth * sizeof(float));
    if (i < count)
      for (std::uint64_t v = 0; v < kWidth; ++v) to[i * k + v] = i + v < count ? at[i + v] : 0.0f;
  }
}

template <int kWidth>
static __attribute__((noinline)) void pack_operand(std::uint64_t count, std::uint64_t k, const Operand& from,
                                                   float* to) {
  if (from.inner_is_row) return pack_by_copying<kWidth>(count, k, from.at, from.ld, to);
  for (std::uint64_t i = 0; i < count; i += kWidth)
    pack_by_transposing<kWidth>(count - i, k, from.at + i * from.ld, from.ld, to + i * k);
}

static void large_pack(std::uint64_t n, std::uint64_t k, const float* b, std::uint64_t ldb, bool inner_is_row,
                       float* panels) {
  pack_operand<kLargeCols>(n, k, {b, ldb, inner_is_row}, panels);
}

static void large_product(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a,
                          std::uint64_t lda, bool inner_is_row, const float* panels, bool add, float* c,
                          std::uint64_t ldc, float* strips) {
  const Operand left{a, lda, inner_is_row};
  for (std::uint64_t g = 0; g < m; g += kLargeGroup) {
    const std::uint64_t rows = m - g < kLargeGroup ? m - g : kLargeGroup;
    pack_operand<kLargeRows>(rows, k, rows_from(left, g), strips);
    const std::uint64_t rest = m - g - rows, after = rest < kLargeGroup ? rest : kLargeGroup;
    const Operand next = rows_from(left, after ? g + rows : g);
    const std::uint64_t lines = after ? lines_of_group(next, after, k) : 0;
    const std::uint64_t tiles = (n + kLargeCols - 1) / kLargeCols * ((rows + kLargeRows - 1) / kLargeRows);
    std::uint64_t tile = 0, fetched = 0;
    for (std::uint64_t i = 0; i < rows; i += kLargeRows)
      for (std::uint64_t j = 0; j < n; j += kLargeCols) {
        const std::uint64_t until = lines * ++tile / tiles;
        fetch_lines(next, k, fetched, until);
        fetched = until;
        large_tile(k, strips + i * k, panels + j * k, add, c + (g + i) * ldc + j, ldc, rows - i, n - j);
      }
  }
}

// ---- peak rate

// Independent chains of FMAs on registers, enough for the latency of two units. Returns the FLOPs; `use`
// keeps the sums in the program.
static double fma_loop(std::uint64_t rounds, float* use) {
  Vec a = splat(0.999f), b = splat(0.001f), s0 = a, s1 = b, s2 = a, s3 = b, s4 = a, s5 = b, s6 = a, s7 = b,
      s8 = a, s9 = b;
  for (std::uint64_t r = 0; r < rounds; ++r) {
    s0 = s0 * a + b, s1 = s1 * a + b, s2 = s2 * a + b, s3 = s3 * a + b, s4 = s4 * a + b;
    s5 = s5 * a + b, s6 = s6 * a + b, s7 = s7 * a + b, s8 = s8 * a + b, s9 = s9 * a + b;
    __asm__ volatile(""
                     : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5), "+x"(s6), "+x"(s7),
                       "+x"(s8), "+x"(s9));
  }
  *use = sum(s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9);
  return 10.0 * kLanes * 2.0 * static_cast<double>(rounds);
}
