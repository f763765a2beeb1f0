// DoRA: norms of rows of adapted matrices, and the product with the magnitudes, forward and backward, of rows
// that are stored as T, float or Bf16. Arithmetic is f32. Part of kernels_isa.cpp, which includes it once per
// instruction set; no threads. See kernel_table.hpp for shapes and meanings.
#pragma once

// kCount vectors of the columns from w, a and sum on; ld: columns of a.
template <int kCount, class T>
TH_INLINE void adapted_columns(const T* w, const T* a, std::uint64_t ld, const T* factors, std::uint64_t rank,
                               float scale, float* sum) {
  Vec s[kCount];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) s[i] = load(w + i * kLanes);
  for (std::uint64_t q = 0; q < rank; ++q, a += ld) {
    const Vec f = splat(scale * value_of(factors[q]));
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) s[i] = load(a + i * kLanes) * f + s[i];
  }
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) store(sum + i * kLanes, s[i]);
}

// sum[j] = w[j] + scale * (factors a)[j], j < n: n columns of one row of an adapted matrix.
template <class T>
TH_INLINE void adapted_row(std::uint64_t n, const T* w, const T* a, std::uint64_t ld, const T* factors,
                           std::uint64_t rank, float scale, float* sum) {
  std::uint64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes)
    adapted_columns<4>(w + j, a + j, ld, factors, rank, scale, sum + j);
  for (; j + kLanes <= n; j += kLanes) adapted_columns<1>(w + j, a + j, ld, factors, rank, scale, sum + j);
  for (; j < n; ++j) {
    sum[j] = value_of(w[j]);
    for (std::uint64_t q = 0; q < rank; ++q)
      sum[j] += value_of(a[q * ld + j]) * (scale * value_of(factors[q]));
  }
}

// A block of columns at a time: the part of A that all rows use stays in the cache. Squares are added in
// double.
template <class T>
static void adapted_squares(std::uint64_t rows, std::uint64_t k, std::uint64_t rank, const T* w, const T* a,
                            const T* b, float scale, double* squares) {
  constexpr std::uint64_t kColumns = 256;
  float sum[kColumns];
  for (std::uint64_t r = 0; r < rows; ++r) squares[r] = 0.0;
  for (std::uint64_t first = 0; first < k; first += kColumns) {
    const std::uint64_t n = k - first < kColumns ? k - first : kColumns;
    for (std::uint64_t r = 0; r < rows; ++r) {
      const T *row = w + r * k + first, *of_a = a + first, *factors = b + r * rank;
      adapted_row(n, row, of_a, k, factors, rank, scale, sum);
      squares[r] += sum_squares(n, sum);
    }
  }
}

// Squares of up to 64 rows are added in float, then in double.
template <class T>
static void adapted_column_squares(std::uint64_t rows, std::uint64_t n, std::uint64_t rank, std::uint64_t ld,
                                   const T* w, const T* a, const T* b, float scale, double* squares) {
  constexpr std::uint64_t kRowsAhead = 64;
  float sum[64], part[64];
  for (std::uint64_t j = 0; j < n; ++j) squares[j] = 0.0;
  for (std::uint64_t first = 0; first < rows; first += kRowsAhead) {
    const std::uint64_t last = rows - first < kRowsAhead ? rows : first + kRowsAhead;
    for (std::uint64_t j = 0; j < n; ++j) part[j] = 0.0f;
    for (std::uint64_t r = first; r < last; ++r) {
      const T *row = w + r * ld, *factors = a + r * rank;
      adapted_row(n, row, b, ld, factors, rank, scale, sum);
      for (std::uint64_t j = 0; j < n; ++j) part[j] += sum[j] * sum[j];
    }
    for (std::uint64_t j = 0; j < n; ++j) squares[j] += static_cast<double>(part[j]);
  }
}

template <class T>
static void dora(std::uint64_t rows, std::uint64_t n, const T* x, const float* factor, float less,
                 const T* bias, const T* residual, T* y) {
  for (std::uint64_t r = 0; r < rows; ++r, x += n, y += n)
    for (std::uint64_t j = 0; j < n; j += kLanes) {
      const std::uint64_t count = n - j < kLanes ? n - j : kLanes;
      Vec v = (load_some(factor + j, count) - less) * load_some(x + j, count);
      if (bias) v += load_some(bias + j, count);
      if (residual) v += load_some(residual + r * n + j, count);
      store_some(y + j, v, count);
    }
}

template <class T>
static void dora_bwd(std::uint64_t rows, std::uint64_t n, std::uint64_t ld, const T* dy, T* x,
                     const float* factor, T* product, float* sums) {
  for (std::uint64_t r = 0; r < rows; ++r, dy += ld, x += ld)
    for (std::uint64_t j = 0; j < n; j += kLanes) {
      const std::uint64_t count = n - j < kLanes ? n - j : kLanes;
      const Vec d = load_some(dy + j, count), f = load_some(factor + j, count);
      store_some(sums + j, d * load_some(x + j, count) + load_some(sums + j, count), count);
      store_some(x + j, d * f, count);
      if (product) store_some(product + r * ld + j, d * (f - 1.0f), count);
    }
}
