// bf16 products by AVX512_BF16: vdpbf16ps adds the products of a pair to each of 16 sums. Same rule about
// headers as kernels_isa.cpp.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "plugins/cpu/kernels/bf16.hpp"

namespace trainhost::cpu {
namespace avx512_bf16 {
#include "plugins/cpu/kernels/bf16_pack_avx512.hpp"

// Inner elements of a panel that stay in the L1 cache.
constexpr std::uint64_t kInner = 256;
static inline void begin_blocks() {}
static inline void end_blocks() {}

// 8 rows by 32 columns at a time: 16 sums, two vectors of pairs, and a pair of each row broadcast to
// all lanes.
static void block(std::uint64_t, std::uint64_t first, std::uint64_t inner, const std::uint16_t* left,
                  const std::uint16_t* right, std::uint64_t rows, std::uint64_t, bool add, float* c,
                  std::uint64_t ldc) {
  left += first * kBlock, right += first * kBlock;
  const std::uint64_t blocks = inner / kBf16InnerUnit;
  constexpr int kRows = 8;
  for (std::uint64_t i = 0; i < rows; i += kRows, c += kRows * ldc) {
    __m512 sum[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v)
        sum[r][v] = add ? _mm512_loadu_ps(c + r * ldc + v * 16) : _mm512_setzero_ps();
    const std::uint16_t* b = right;
    for (std::uint64_t o = 0; o < blocks; ++o) {
      const std::uint16_t* a = left + o * 1024 + i * 32;
      for (int p = 0; p < 16; ++p, b += 64, a += 2) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 32);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int pair;
          __builtin_memcpy(&pair, a + r * 32, sizeof pair);
          const __m512bh ar = (__m512bh)_mm512_set1_epi32(pair);
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], ar, b0);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], ar, b1);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) _mm512_storeu_ps(c + r * ldc + v * 16, sum[r][v]);
  }
}

#include "plugins/cpu/kernels/bf16_tiles.hpp"

extern const Bf16Kernels bf16_table;
const Bf16Kernels bf16_table = {"avx512_bf16", true,       kBlock,   sizeof(Element), 128,    256,
                                pack_left,     pack_right, multiply, nullptr,         nullptr};

}  // namespace avx512_bf16
}  // namespace trainhost::cpu
