// Dot products of few rows with every row of a weight, for generation: the weight is read once, from memory,
// in the type in which it is stored. Part of kernels_isa.cpp; shapes and meanings: kernel_table.hpp. A sum
// has one accumulator vector that steps over the inner dimension in order, so the bits of an element do not
// depend on the number of rows.
#pragma once

#if defined(__AVX512F__)
TH_INLINE Vec even_of(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
TH_INLINE Vec odd_of(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#elif defined(__AVX2__)
TH_INLINE Vec even_of(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
TH_INLINE Vec odd_of(Vec a, Vec b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#else
TH_INLINE Vec even_of(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
TH_INLINE Vec odd_of(Vec a, Vec b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
#endif

// A register of bfloat16 has two vectors of f32: the even elements, after a shift, and the odd ones, after a
// mask. That takes fewer instructions than to convert them in order, so x is brought into this order once
// (Kernels::order_for_dots).
static void order_for_dots(std::uint64_t n, const float* x, float* to) {
  std::uint64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vec a = load(x + i), b = load(x + i + kLanes);
    store(to + i, even_of(a, b));
    store(to + i + kLanes, odd_of(a, b));
  }
  for (; i < n; ++i) to[i] = x[i];
}

TH_INLINE void load_pair(const float* w, Vec& a, Vec& b) { a = load(w), b = load(w + kLanes); }
TH_INLINE void load_pair(const std::uint16_t* w, Vec& a, Vec& b) {
  typedef VecI VecIU __attribute__((aligned(2), may_alias));
  const VecI both = *reinterpret_cast<const VecIU*>(w);
  a = reinterpret_cast<Vec>(both << 16),
  b = reinterpret_cast<Vec>(both & static_cast<std::int32_t>(0xffff0000u));
}

// y[r * ldy + j * step] += dot(w[j * step], x[r]) for M rows of x and N rows of w, which has rows of k.
template <int M, int N, class Weight>
TH_INLINE void dots_tile(std::uint64_t k, const Weight* w, std::uint64_t step, const float* x,
                         std::uint64_t ldx, float* y, std::uint64_t ldy) {
  const std::uint64_t ldw = step * k;
  Vec acc[M][N] = {};
  std::uint64_t p = 0;
  for (; p + 2 * kLanes <= k; p += 2 * kLanes) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      Vec a, b;
      load_pair(w + j * ldw + p, a, b);
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        acc[r][j] = a * load(x + r * ldx + p) + acc[r][j];
        acc[r][j] = b * load(x + r * ldx + p + kLanes) + acc[r][j];
      }
    }
  }
  for (std::uint64_t n; p < k; p += n) {
    n = k - p < kLanes ? k - p : kLanes;
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      const Vec a = n == kLanes ? load(w + j * ldw + p) : load_part(w + j * ldw + p, n);
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r)
        acc[r][j] = a * (n == kLanes ? load(x + r * ldx + p) : load_part(x + r * ldx + p, n)) + acc[r][j];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < M; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) y[r * ldy + j * step] += sum(acc[r][j]);
}

// All rows of x for N rows of w: after the first four rows of x, w comes from a cache.
template <int N, class Weight>
TH_INLINE void dots_of_rows(std::uint64_t m, std::uint64_t k, const Weight* w, std::uint64_t step,
                            const float* x, std::uint64_t ldx, float* y, std::uint64_t ldy) {
  for (; m >= 4; m -= 4, x += 4 * ldx, y += 4 * ldy) dots_tile<4, N>(k, w, step, x, ldx, y, ldy);
  if (m >= 2) dots_tile<2, N>(k, w, step, x, ldx, y, ldy), m -= 2, x += 2 * ldx, y += 2 * ldy;
  if (m) dots_tile<1, N>(k, w, step, x, ldx, y, ldy);
}

// Eight rows of w at a time for one row of x: as many independent sums as hide the latency of an addition.
// With more rows of x, two. These rows are an eighth (or half) of w apart, so that the hardware prefetches as
// many long streams: neighbouring rows of 2 KiB are read at half the rate.
template <class Weight>
TH_INLINE void dots_of_type(std::uint64_t m, std::uint64_t n, std::uint64_t k, const Weight* w,
                            const float* x, std::uint64_t ldx, float* y, std::uint64_t ldy) {
  const std::uint64_t rows = m == 1 ? 8 : 2, step = n / rows, left = n - step * rows;
  for (std::uint64_t j = 0; j < step; ++j)
    if (m == 1)
      dots_tile<1, 8>(k, w + j * k, step, x, ldx, y + j, ldy);
    else
      dots_of_rows<2>(m, k, w + j * k, step, x, ldx, y + j, ldy);
  for (std::uint64_t j = n - left; j < n; ++j) dots_of_rows<1>(m, k, w + j * k, 1, x, ldx, y + j, ldy);
}

static void dots(std::uint64_t m, std::uint64_t n, std::uint64_t k, const void* w, bool bf16, const float* x,
                 std::uint64_t ldx, float* y, std::uint64_t ldy) {
  if (bf16)
    dots_of_type(m, n, k, static_cast<const std::uint16_t*>(w), x, ldx, y, ldy);
  else
    dots_of_type(m, n, k, static_cast<const float*>(w), x, ldx, y, ldy);
}

static void widen(std::uint64_t n, const std::uint16_t* from, float* to) {
  std::uint64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store_part(to + i, load_part(from + i, n - i), n - i);
}

static void narrow(std::uint64_t n, const float* from, Bf16* to) {
  std::uint64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store_part(to + i, load_part(from + i, n - i), n - i);
}

// A tile of sums with what is added to it.
static void store_sums(std::uint64_t rows, std::uint64_t cols, const float* sums, std::uint64_t ld_sums,
                       float scale, const Bf16* bias, const Bf16* residual, Bf16* c, std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r, sums += ld_sums, c += ld) {
    for (std::uint64_t j = 0; j < cols; j += kLanes) {
      const std::uint64_t n = cols - j < kLanes ? cols - j : kLanes;
      Vec v = load_some(sums + j, n) * scale;
      if (bias) v += load_some(bias + j, n);
      if (residual) v += load_some(residual + j, n);
      store_some(c + j, v, n);
    }
    if (residual) residual += ld;
  }
}
