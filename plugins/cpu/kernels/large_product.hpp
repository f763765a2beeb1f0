// Matrix products of large shapes. The right operand is packed into panels that stay in the L2 cache; the
// left one is packed a group of rows at a time, and a strip of it stays in the L1 cache while it is
// multiplied with every panel. Part of kernels_isa.cpp, after small_product.hpp; shapes and meanings:
// kernel_table.hpp. Each element is a sum over the inner elements in order that is then added to C, so its
// bits do not depend on the tile that it is in.
#pragma once
#if defined(__AVX512F__)
constexpr int kLargeRows = 12, kLargeVectors = 2;  // 32 registers: 24 sums, 2 of a panel, one of a strip
// Whether lines that are needed later are fetched between the steps of a tile. In a burst before it they
// occupy all buffers of the L1 cache, for which the lines of the panel then wait; but instructions between
// the steps take slots of the FMA units' ports, and 256-bit tiles have more steps and need fewer lines at a
// time.
constexpr bool kSpreadFetches = true;
#elif defined(__AVX2__)
constexpr int kLargeRows = 6, kLargeVectors = 2;  // 16 registers: 12 sums, 2, one
constexpr bool kSpreadFetches = false;
#else
constexpr int kLargeRows = 4, kLargeVectors = 2;
constexpr bool kSpreadFetches = false;
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

// Inner elements between two fetches of a line that will be packed later.
constexpr std::uint64_t kSteps = 16;

// Rows that will be packed later, divided into units of one line per kSteps inner elements of a tile, which
// are taken one after the other. A unit is a row, or, if rows are short, a part of a column of lines.
struct Units {
  const float* at;
  std::uint64_t count, step, advance;  // units left; floats between the lines of a unit, and between units
  std::uint64_t in_column, per_column,
      jump;  // units left in this column, of a column; floats to the next one
};
TH_INLINE Units units_of(const LargeAhead& from, std::uint64_t k) {
  const std::uint64_t per_row = (from.floats + 15) / 16, lines = k / kSteps;
  if (!lines || !per_row || !from.rows) return {};
  if (2 * per_row > lines) return {from.at, from.rows, 16, from.ld, from.rows, from.rows, 0};
  const std::uint64_t of_column = (from.rows + lines - 1) / lines, advance = lines * from.ld;
  return {from.at, of_column * per_row, from.ld, advance, of_column, of_column, 16 - of_column * advance};
}
TH_INLINE const float* take_unit(Units& u) {
  const float* unit = u.at;
  --u.count;
  u.at += u.advance;
  if (--u.in_column == 0) u.at += u.jump, u.in_column = u.per_column;
  return unit;
}

// What is fetched into the L2 cache during one tile: a line of each with every kSteps inner elements.
struct Fetch {
  const float *left, *left2, *right;
  std::uint64_t left_step, right_step;
};
TH_INLINE void fetch_lines(Fetch& f) {
  __builtin_prefetch(f.left, 0, 2);
  __builtin_prefetch(f.left2, 0, 2);
  __builtin_prefetch(f.right, 0, 2);
  f.left += f.left_step, f.left2 += f.left_step, f.right += f.right_step;
}

// A row of a tile of C, in the L1 cache, to be read and written.
TH_INLINE void fetch_row(const float* row) {
  __builtin_prefetch(row, 1);
  __builtin_prefetch(row + kLargeCols - 1, 1);
}

// Adds the products of one inner element.
TH_INLINE void large_step(Vec (&acc)[kLargeRows][kLargeVectors], const float* strip, const float* panel) {
  constexpr int kAhead = 8;  // inner elements of the panel that are fetched ahead from the L2 cache
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
}
TH_INLINE void large_steps(Vec (&acc)[kLargeRows][kLargeVectors], const float*& strip, const float*& panel) {
  constexpr std::uint64_t kUnroll = 8;
  const float* const end = strip + kSteps * kLargeRows;
#pragma GCC unroll 1
  do {
#pragma GCC unroll 8
    for (std::uint64_t s = 0; s < kUnroll; ++s)
      large_step(acc, strip + s * kLargeRows, panel + s * kLargeCols);
    strip += kUnroll * kLargeRows;
    panel += kUnroll * kLargeCols;
  } while (strip != end);
}

// Sums of one register tile over k inner elements, then C = sums (+ addend). rows, cols: the part of C that
// exists. Scalar instructions in the loop take slots of the FMA units' ports, so there are few.
TH_INLINE void large_tile(std::uint64_t k, const float* strip, const float* panel, const float* addend,
                          std::uint64_t ld_addend, float* c, std::uint64_t ldc, std::uint64_t rows,
                          std::uint64_t cols, Fetch fetch) {
  Vec acc[kLargeRows][kLargeVectors] = {};
  // C is needed after the sums: a row is fetched with every kSteps inner elements, or all rows now.
  const bool later = kSpreadFetches && rows >= kLargeRows && k >= kSteps * kLargeRows;
  if (!later || (addend && addend != c))
#pragma GCC unroll 16
    for (int i = 0; i < kLargeRows; ++i) {
      const std::uint64_t at = static_cast<std::uint64_t>(i) < rows ? static_cast<std::uint64_t>(i) : 0;
      if (!later) fetch_row(c + at * ldc);
      if (addend && addend != c) fetch_row(addend + at * ld_addend);
    }
  const float* const end = strip + k * kLargeRows;
  if (kSpreadFetches) {
    const float *row = c, *const last = c + (later ? (kLargeRows - 1) * ldc : 0);
    for (std::uint64_t p = kSteps; p <= k; p += kSteps) {
      fetch_row(row);
      row = row == last ? row : row + ldc;
      fetch_lines(fetch);
      large_steps(acc, strip, panel);
    }
  }
#pragma GCC unroll 4
  for (; strip != end; strip += kLargeRows, panel += kLargeCols) large_step(acc, strip, panel);
  if (rows >= kLargeRows && cols >= kLargeCols) {
#pragma GCC unroll 16
    for (int i = 0; i < kLargeRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kLargeVectors; ++j) {
        const std::uint64_t row_of = static_cast<std::uint64_t>(i), col = j * std::uint64_t{kLanes};
        store(c + row_of * ldc + col,
              addend ? load(addend + row_of * ld_addend + col) + acc[i][j] : acc[i][j]);
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
      c[i * ldc + j] = addend ? addend[i * ld_addend + j] + sum : sum;
    }
}

// ---- packing into [ceil(count / kWidth)][k][kWidth]; rows beyond `count` are zeros

// Rows become columns. Panels and strips as wide as vectors are transposed in squares.
template <int kWidth>
TH_INLINE void pack_by_transposing(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                                   float* to) requires(kWidth % kLanes == 0) {
  constexpr std::uint64_t kAhead = 64;  // elements of every row
  for (std::uint64_t i = 0; i < kWidth; i += kLanes) {
    const std::uint64_t rows = count <= i ? 0 : count - i < kLanes ? count - i : kLanes;
    const float* from = at + i * ld;
    std::uint64_t p = 0;
    for (; p + kLanes <= k; p += kLanes) {
      if (p % 16 == 0)
        for (std::uint64_t r = 0; r < rows; ++r) __builtin_prefetch(from + r * ld + p + kAhead);
      if (rows == kLanes)
        transpose_square(kLanes, kLanes, from + p, ld, to + p * kWidth + i, kWidth);
      else
        transpose_square(rows, kLanes, from + p, ld, to + p * kWidth + i, kWidth);
    }
    if (p < k) transpose_square(rows, k - p, from + p, ld, to + p * kWidth + i, kWidth);
  }
}

#if defined(__AVX2__)
// 256-bit shuffles within 128-bit lanes: they run on two ports of Intel's cores, 512-bit ones on one.
typedef float Quad __attribute__((vector_size(16)));
typedef float Octet __attribute__((vector_size(32)));
typedef Quad QuadU __attribute__((aligned(4), may_alias));
typedef Octet OctetU __attribute__((aligned(4), may_alias));

// Columns of four rows of eight elements: part[q] is column q of the four, then column q + 4.
TH_INLINE void transpose_4x8(const float* at, std::uint64_t ld, std::uint64_t rows, Octet (&part)[4]) {
  Octet r[4];
#pragma GCC unroll 4
  for (std::uint64_t i = 0; i < 4; ++i)
    r[i] = i < rows ? static_cast<Octet>(*reinterpret_cast<const OctetU*>(at + i * ld)) : Octet{};
  const Octet low01 = __builtin_shufflevector(r[0], r[1], 0, 8, 1, 9, 4, 12, 5, 13),
              high01 = __builtin_shufflevector(r[0], r[1], 2, 10, 3, 11, 6, 14, 7, 15),
              low23 = __builtin_shufflevector(r[2], r[3], 0, 8, 1, 9, 4, 12, 5, 13),
              high23 = __builtin_shufflevector(r[2], r[3], 2, 10, 3, 11, 6, 14, 7, 15);
  part[0] = __builtin_shufflevector(low01, low23, 0, 1, 8, 9, 4, 5, 12, 13);
  part[1] = __builtin_shufflevector(low01, low23, 2, 3, 10, 11, 6, 7, 14, 15);
  part[2] = __builtin_shufflevector(high01, high23, 0, 1, 8, 9, 4, 5, 12, 13);
  part[3] = __builtin_shufflevector(high01, high23, 2, 3, 10, 11, 6, 7, 14, 15);
}

// kWidth rows (a multiple of four, plus two or none) of eight elements to eight rows of kWidth.
template <int kWidth>
TH_INLINE void transpose_rows(const float* at, std::uint64_t ld, std::uint64_t rows, float* to) {
  constexpr int kFours = kWidth / 4;
  Octet part[kFours + 1][4];
#pragma GCC unroll 4
  for (int g = 0; g < kFours; ++g)
    transpose_4x8(at + g * 4 * ld, ld, rows <= static_cast<std::uint64_t>(g) * 4 ? 0 : rows - g * 4, part[g]);
  if constexpr (kWidth % 4 != 0)
    transpose_4x8(at + kFours * 4 * ld, ld,
                  rows <= kFours * 4      ? 0
                  : rows - kFours * 4 < 2 ? 1
                                          : 2,
                  part[kFours]);
#pragma GCC unroll 8
  for (int p = 0; p < 8; ++p) {
#pragma GCC unroll 4
    for (int g = 0; g < kFours; ++g) {
      const Octet v = part[g][p % 4];
      *reinterpret_cast<QuadU*>(to + p * kWidth + g * 4) =
          p < 4 ? __builtin_shufflevector(v, v, 0, 1, 2, 3) : __builtin_shufflevector(v, v, 4, 5, 6, 7);
    }
    if constexpr (kWidth % 4 != 0) {
      const Octet v = part[kFours][p % 4];
      const Quad q =
          p < 4 ? __builtin_shufflevector(v, v, 0, 1, 2, 3) : __builtin_shufflevector(v, v, 4, 5, 6, 7);
      __builtin_memcpy(to + p * kWidth + kFours * 4, &q, 2 * sizeof(float));
    }
  }
}

#if defined(__AVX512F__)
// 12 rows of 16 elements to 16 rows of 12, by 512-bit shuffles: transposes within 128-bit lanes, then of
// lanes.
TH_INLINE void transpose_12x16(const float* at, std::uint64_t ld, float* to) {
  Vec quads[12];  // quads[3 q + g], lane l: column 4 l + q of rows 4 g to 4 g + 3
#pragma GCC unroll 3
  for (int g = 0; g < 3; ++g) {
    Vec r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) r[i] = load(at + static_cast<std::uint64_t>(4 * g + i) * ld);
    const Vec low01 = __builtin_shufflevector(r[0], r[1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28,
                                              13, 29),
              high01 = __builtin_shufflevector(r[0], r[1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30,
                                               15, 31),
              low23 = __builtin_shufflevector(r[2], r[3], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28,
                                              13, 29),
              high23 = __builtin_shufflevector(r[2], r[3], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30,
                                               15, 31);
    quads[g] =
        __builtin_shufflevector(low01, low23, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    quads[3 + g] =
        __builtin_shufflevector(low01, low23, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    quads[6 + g] =
        __builtin_shufflevector(high01, high23, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    quads[9 + g] =
        __builtin_shufflevector(high01, high23, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
#pragma GCC unroll 3
  for (int v = 0; v < 3; ++v) {
    const Vec *q = quads + 4 * v,
              low01 =
                  __builtin_shufflevector(q[0], q[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
              high01 = __builtin_shufflevector(q[0], q[1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28,
                                               29, 30, 31),
              low23 =
                  __builtin_shufflevector(q[2], q[3], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
              high23 = __builtin_shufflevector(q[2], q[3], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28,
                                               29, 30, 31);
    store(to + v * 16,
          __builtin_shufflevector(low01, low23, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27));
    store(to + 48 + v * 16,
          __builtin_shufflevector(low01, low23, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
    store(to + 96 + v * 16,
          __builtin_shufflevector(high01, high23, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27));
    store(to + 144 + v * 16, __builtin_shufflevector(high01, high23, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                                     23, 28, 29, 30, 31));
  }
}
#endif

// A strip that is narrower than a vector.
template <int kWidth>
TH_INLINE void pack_by_transposing(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                                   float* to) requires(kWidth < kLanes) {
  constexpr std::uint64_t kAhead = 64;  // elements of every row
  const std::uint64_t rows = count < kWidth ? count : kWidth;
  std::uint64_t p = 0;
#if defined(__AVX512F__)
  if constexpr (kWidth == 12)
    for (; rows == kWidth && p + 16 <= k; p += 16) {
      for (std::uint64_t r = 0; r < rows; ++r) __builtin_prefetch(at + r * ld + p + kAhead);
      transpose_12x16(at + p, ld, to + p * kWidth);
    }
#endif
  for (; p + 8 <= k; p += 8) {
    if (p % 16 == 0)
      for (std::uint64_t r = 0; r < rows; ++r) __builtin_prefetch(at + r * ld + p + kAhead);
    if (rows == kWidth)
      transpose_rows<kWidth>(at + p, ld, kWidth, to + p * kWidth);
    else
      transpose_rows<kWidth>(at + p, ld, rows, to + p * kWidth);
  }
  for (const std::uint64_t rest = k % 8; p < k; p += rest)
    for (std::uint64_t r = 0; r < kWidth; ++r)
      for (std::uint64_t q = p; q < p + rest; ++q) to[q * kWidth + r] = r < rows ? at[r * ld + q] : 0.0f;
}
#endif

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
                          std::uint64_t lda, bool inner_is_row, const float* panels, const float* addend,
                          std::uint64_t ld_addend, float* c, std::uint64_t ldc, float* strips,
                          const LargeAhead& next_left, const LargeAhead& next_right) {
  const Operand left{a, lda, inner_is_row};
  Units right = units_of(next_right, k);
  const std::uint64_t panels_of_n = (n + kLargeCols - 1) / kLargeCols;
  for (std::uint64_t g = 0; g < m; g += kLargeGroup) {
    const std::uint64_t rows = m - g < kLargeGroup ? m - g : kLargeGroup;
    pack_operand<kLargeRows>(rows, k, rows_from(left, g), strips);
    const std::uint64_t rest = m - g - rows, after = rest < kLargeGroup ? rest : kLargeGroup;
    Units later = units_of(!after         ? next_left
                           : inner_is_row ? LargeAhead{a + g + rows, k, after, lda}
                                          : LargeAhead{a + (g + rows) * lda, after, k, lda},
                           k);
    // The units are spread over the tiles, at most two to each.
    const std::uint64_t tiles = panels_of_n * ((rows + kLargeRows - 1) / kLargeRows), units = later.count;
    std::uint64_t due = 0;
    for (std::uint64_t i = 0; i < rows; i += kLargeRows)
      for (std::uint64_t j = 0; j < n; j += kLargeCols) {
        const float* const strip = strips + i * k;
        Fetch fetch{strip, strip, strip, 0, 0};  // nothing
        if ((due += units) >= tiles) {
          due -= tiles;
          fetch.left = fetch.left2 = take_unit(later), fetch.left_step = later.step;
          if (due >= tiles) due -= tiles, fetch.left2 = take_unit(later);
        }
        if (right.count) fetch.right = take_unit(right), fetch.right_step = right.step;
        if (!kSpreadFetches && (fetch.left_step || fetch.right_step))
          for (std::uint64_t p = kSteps; p <= k; p += kSteps) fetch_lines(fetch);
        large_tile(k, strip, panels + j * k, addend ? addend + (g + i) * ld_addend + j : nullptr, ld_addend,
                   c + (g + i) * ldc + j, ldc, rows - i, n - j, fetch);
      }
  }
}

// ---- peak rates

// Independent chains of FMAs on registers, enough for the latency of two units and for uneven use of them.
// Returns the FLOPs; `use` keeps the sums in the program.
static double fma_loop(std::uint64_t rounds, float* use) {
  constexpr int kChains = kLanes == 16 ? 24 : 12;
  const Vec a = splat(0.999f), b = splat(0.001f);
  Vec s[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) s[i] = splat(0.001f * static_cast<float>(i));
#pragma GCC unroll 1
  for (std::uint64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) s[i] = s[i] * a + b;
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) s[0] += s[i];
  *use = sum(s[0]);
  return kChains * kLanes * 2.0 * static_cast<double>(rounds);
}

static double tile_loop(std::uint64_t rounds, float* use) {
  constexpr std::uint64_t kInner = 192;  // both operands take 33 KiB at most
  // Behind the panel: what its last steps fetch ahead, never read.
  alignas(64) float strip[kInner * kLargeRows], panel[(kInner + 8) * kLargeCols], c[kLargeRows * kLargeCols];
  // Different bits, as real operands have: a CPU may lower its clock with the power that they need.
  std::uint32_t bits = 1;
  const auto next = [&] {
    bits = bits * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31f;
  };
  for (float& x : strip) x = next();
  for (float& x : panel) x = next();
  for (std::uint64_t r = 0; r < rounds; ++r) {
    large_tile(kInner, strip, panel, nullptr, 0, c, kLargeCols, kLargeRows, kLargeCols,
               {strip, strip, strip, 0, 0});
    __asm__ volatile("" : : "r"(strip), "r"(panel), "r"(c) : "memory");  // each round is computed
  }
  *use = c[0];
  return 2.0 * kInner * kLargeRows * kLargeCols * static_cast<double>(rounds);
}
