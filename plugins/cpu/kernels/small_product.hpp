// Matrix products for shapes that are too small for OpenBLAS to be quick: a register tile of kRows x NV vectors over the
// whole inner dimension, operands read in place. The right operand is either row-major already, or transposed into
// panels first. Part of kernels_isa.cpp. Sums run over the inner dimension in order, one accumulator an element, so an
// element's bits do not depend on which tile it falls into.
#pragma once

// C[MR, NV*kLanes] (+)= sum over p of a(i, p) * B[p, :], with a(i, p) = a[i * ai + p * ap]. `last`: elements of the last
// vector, 0 = all.
template <int MR, int NV, bool kPart>
TH_INLINE void register_tile(std::uint64_t k, const float* a, std::uint64_t ai, std::uint64_t ap, const float* b,
                             std::uint64_t ldb, bool add, float* c, std::uint64_t ldc, std::uint64_t last) {
  Vec acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      const float* from = c + i * ldc + j * kLanes;
      acc[i][j] = !add ? Vec{} : kPart && j == NV - 1 ? load_part(from, last) : load(from);
    }
  for (std::uint64_t p = 0; p < k; ++p) {
    Vec bv[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) bv[j] = kPart && j == NV - 1 ? load_part(b + j * kLanes, last) : load(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      Vec av = splat(a[i * ai]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = av * bv[j] + acc[i][j];
    }
    a += ap;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      float* to = c + i * ldc + j * kLanes;
      if (kPart && j == NV - 1) store_part(to, acc[i][j], last);
      else store(to, acc[i][j]);
    }
}

// All rows of one panel of columns.
template <int MR, int NV, bool kPart>
static void panel(std::uint64_t m, std::uint64_t k, const float* a, std::uint64_t ai, std::uint64_t ap, const float* b,
                  std::uint64_t ldb, bool add, float* c, std::uint64_t ldc, std::uint64_t last) {
  std::uint64_t i = 0;
  for (; i + MR <= m; i += MR) register_tile<MR, NV, kPart>(k, a + i * ai, ai, ap, b, ldb, add, c + i * ldc, ldc, last);
  if constexpr (MR > 4)
    for (; i + 4 <= m; i += 4) register_tile<4, NV, kPart>(k, a + i * ai, ai, ap, b, ldb, add, c + i * ldc, ldc, last);
  for (; i < m; ++i) register_tile<1, NV, kPart>(k, a + i * ai, ai, ap, b, ldb, add, c + i * ldc, ldc, last);
}

#if defined(__AVX512F__)
constexpr int kRows1 = 12, kRows2 = 12, kRows3 = 8;  // 32 registers: accumulators, NV of b, one of a
#else
constexpr int kRows1 = 8, kRows2 = 6, kRows3 = 4;    // 16 registers
#endif

template <bool kPart>
TH_INLINE void panel_of(int nv, std::uint64_t m, std::uint64_t k, const float* a, std::uint64_t ai, std::uint64_t ap, const float* b,
                        std::uint64_t ldb, bool add, float* c, std::uint64_t ldc, std::uint64_t last) {
  if (nv == 3) panel<kRows3, 3, kPart>(m, k, a, ai, ap, b, ldb, add, c, ldc, last);
  else if (nv == 2) panel<kRows2, 2, kPart>(m, k, a, ai, ap, b, ldb, add, c, ldc, last);
  else panel<kRows1, 1, kPart>(m, k, a, ai, ap, b, ldb, add, c, ldc, last);
}

// Vectors of the panel that begins at column j: as equal as possible, at most 3.
TH_INLINE int panel_vectors(std::uint64_t columns_left) {
  std::uint64_t v = (columns_left + kLanes - 1) / kLanes;
  return v == 4 ? 2 : v >= 3 ? 3 : static_cast<int>(v);
}

constexpr std::uint64_t kInner = 256;  // inner elements at a time: a panel of b then stays in the first-level cache

// C[m,n] = a(i,p) B[k,n] (+ C), any strides of a.
static void product_strided(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t ai, std::uint64_t ap,
                            const float* b, std::uint64_t ldb, bool add, float* c, std::uint64_t ldc) {
  for (std::uint64_t p = 0; p < k; p += kInner) {
    const std::uint64_t inner = k - p < kInner ? k - p : kInner;
    for (std::uint64_t j = 0; j < n;) {
      const int nv = panel_vectors(n - j);
      const std::uint64_t width = static_cast<std::uint64_t>(nv) * kLanes, left = n - j;
      if (left >= width) panel_of<false>(nv, m, inner, a + p * ap, ai, ap, b + p * ldb + j, ldb, add || p, c + j, ldc, 0);
      else panel_of<true>(nv, m, inner, a + p * ap, ai, ap, b + p * ldb + j, ldb, add || p, c + j, ldc, left - width + kLanes);
      j += width;
    }
  }
}
