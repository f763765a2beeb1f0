// Sums, additions and small products over rows. Part of kernels_isa.cpp, which includes it once per
// instruction set; no threads. See kernel_table.hpp for shapes and meanings.
#pragma once

template <class T>
TH_INLINE float dot(std::uint64_t n, const T* a, const T* b) {
  Vec s0{}, s1{};
  std::uint64_t j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    s0 = load(a + j) * load(b + j) + s0;
    s1 = load(a + j + kLanes) * load(b + j + kLanes) + s1;
  }
  if (j + kLanes <= n) s0 = load(a + j) * load(b + j) + s0, j += kLanes;
  if (j < n) s1 = load_part(a + j, n - j) * load_part(b + j, n - j) + s1;
  return sum(s0 + s1);
}

template <class T>
static void add(std::uint64_t n, const T* src, float* dst) {
  std::uint64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store(dst + j, load(dst + j) + load(src + j));
  for (; j < n; ++j) dst[j] += value_of(src[j]);
}

static void add_bias(std::uint64_t rows, std::uint64_t n, const float* src, float* dst, std::uint64_t ld) {
  for (std::uint64_t r = 0; r < rows; ++r) add(n, src, dst + r * ld);
}

template <class T>
static void column_sums(std::uint64_t rows, std::uint64_t n, const T* src, std::uint64_t ld, float* dst) {
  for (std::uint64_t r = 0; r < rows; ++r) add(n, src + r * ld, dst);
}

static double sum_squares(std::uint64_t n, const float* x) {
  VecD s0{}, s1{};
  std::uint64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    VecD a = __builtin_convertvector(*reinterpret_cast<const HalfVecU*>(x + j), VecD);
    VecD b = __builtin_convertvector(*reinterpret_cast<const HalfVecU*>(x + j + kLanes / 2), VecD);
    s0 = a * a + s0;
    s1 = b * b + s1;
  }
  s0 += s1;
  double total = 0.0;
  for (int i = 0; i < kLanes / 2; ++i) total += s0[i];
  for (; j < n; ++j) total += static_cast<double>(x[j]) * static_cast<double>(x[j]);
  return total;
}

template <class T>
static void gemv(std::uint64_t n, std::uint64_t k, const T* w, const T* x, bool add_to, float* y) {
  for (std::uint64_t j = 0; j < n; ++j) {
    float v = dot(k, w + j * k, x);
    y[j] = add_to ? y[j] + v : v;
  }
}
