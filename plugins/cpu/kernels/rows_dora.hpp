// DoRA: norms of rows of adapted matrices, and the product with the magnitudes, forward and backward. Part of
// kernels_isa.cpp, which includes it once per instruction set; no threads. See kernel_table.hpp for shapes
// and meanings.
#pragma once

// A block of columns at a time: the part of A that all rows use stays in the cache. Squares are added in
// double.
static void adapted_squares(std::uint64_t rows, std::uint64_t k, std::uint64_t rank, const float* w,
                            const float* a, const float* b, float scale, double* squares) {
  constexpr std::uint64_t kColumns = 256;
  float sum[kColumns];
  for (std::uint64_t r = 0; r < rows; ++r) squares[r] = 0.0;
  for (std::uint64_t first = 0; first < k; first += kColumns) {
    const std::uint64_t n = k - first < kColumns ? k - first : kColumns;
    for (std::uint64_t r = 0; r < rows; ++r) {
      const float *row = w + r * k + first, *factors = b + r * rank;
      std::uint64_t j = 0;
      for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
        Vec s0 = load(row + j), s1 = load(row + j + kLanes), s2 = load(row + j + 2 * kLanes),
            s3 = load(row + j + 3 * kLanes);
        for (std::uint64_t q = 0; q < rank; ++q) {
          const float* of_a = a + q * k + first + j;
          const Vec f = splat(scale * factors[q]);
          s0 = load(of_a) * f + s0, s1 = load(of_a + kLanes) * f + s1;
          s2 = load(of_a + 2 * kLanes) * f + s2, s3 = load(of_a + 3 * kLanes) * f + s3;
        }
        store(sum + j, s0), store(sum + j + kLanes, s1);
        store(sum + j + 2 * kLanes, s2), store(sum + j + 3 * kLanes, s3);
      }
      for (; j + kLanes <= n; j += kLanes) {
        Vec s = load(row + j);
        for (std::uint64_t q = 0; q < rank; ++q)
          s = load(a + q * k + first + j) * splat(scale * factors[q]) + s;
        store(sum + j, s);
      }
      for (; j < n; ++j) {
        sum[j] = row[j];
        for (std::uint64_t q = 0; q < rank; ++q) sum[j] += a[q * k + first + j] * (scale * factors[q]);
      }
      squares[r] += sum_squares(n, sum);
    }
  }
}

static void dora(std::uint64_t rows, std::uint64_t n, const float* x, const float* factor, float less,
                 const float* bias, const float* residual, float* y) {
  for (std::uint64_t r = 0; r < rows; ++r, x += n, y += n) {
    std::uint64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      Vec v = (load(factor + j) - less) * load(x + j);
      if (bias) v += load(bias + j);
      if (residual) v += load(residual + r * n + j);
      store(y + j, v);
    }
    for (; j < n; ++j) {
      float v = (factor[j] - less) * x[j];
      if (bias) v += bias[j];
      if (residual) v += residual[r * n + j];
      y[j] = v;
    }
  }
}

static void dora_bwd(std::uint64_t rows, std::uint64_t n, std::uint64_t ld, const float* dy, float* x,
                     const float* factor, float* product, float* sums) {
  for (std::uint64_t r = 0; r < rows; ++r, dy += ld, x += ld) {
    std::uint64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      const Vec d = load(dy + j), f = load(factor + j);
      store(sums + j, d * load(x + j) + load(sums + j));
      store(x + j, d * f);
      if (product) store(product + r * ld + j, d * (f - 1.0f));
    }
    for (; j < n; ++j) {
      sums[j] += dy[j] * x[j];
      x[j] = dy[j] * factor[j];
      if (product) product[r * ld + j] = dy[j] * (factor[j] - 1.0f);
    }
  }
}
