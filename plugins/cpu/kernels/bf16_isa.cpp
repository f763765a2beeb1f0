// bf16 products on CPUs without bf16 instructions: operands are rounded as in the other tables and multiplied
// in f32. Not faster than f32 products. Compiled once per instruction set, like kernels_isa.cpp, with the
// same rule about headers.
#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "plugins/cpu/kernels/bf16.hpp"

#define TH_STRING_(x) #x
#define TH_STRING(x) TH_STRING_(x)

namespace trainhost::cpu {
namespace TRAINHOST_KERNEL_SET {
#include "plugins/cpu/kernels/simd.hpp"

// To nearest, ties to even; a NaN stays one.
TH_INLINE std::uint16_t round_bf16(float x) {
  std::uint32_t b = __builtin_bit_cast(std::uint32_t, x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(b >> 16 | 0x40);
  return static_cast<std::uint16_t>((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

TH_INLINE std::uint16_t element(std::uint64_t i, std::uint64_t p, std::uint64_t count, std::uint64_t k,
                                const float* at, std::uint64_t ld, bool inner_is_row) {
  if (i >= count || p >= k) return 0;
  return round_bf16(inner_is_row ? at[p * ld + i] : at[i * ld + p]);
}

static void pack_left(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                      bool inner_is_row, std::uint16_t* to) {
  for (std::uint64_t p = 0; p < k; p += kBf16Block)
    for (std::uint64_t i = 0; i < kBf16Block; ++i)
      for (std::uint64_t q = 0; q < kBf16Block; ++q)
        *to++ = element(i, p + q, count, k, at, ld, inner_is_row);
}

static void pack_right(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                       bool inner_is_row, std::uint16_t* to) {
  for (std::uint64_t p = 0; p < (k + kBf16Block - 1) / kBf16Block * kBf16Block; p += 2)
    for (std::uint64_t j = 0; j < kBf16Block; ++j, to += 2) {
      to[0] = element(j, p, count, k, at, ld, inner_is_row);
      to[1] = element(j, p + 1, count, k, at, ld, inner_is_row);
    }
}

TH_INLINE void begin_blocks() {}
TH_INLINE void end_blocks() {}

// Two rows at a time: a pair of inner elements of each, broadcast to all lanes, times the pairs of 32
// columns.
static void block(std::uint64_t blocks, const std::uint16_t* left, const std::uint16_t* right, bool add,
                  float* c, std::uint64_t ldc) {
  constexpr int kVectors = static_cast<int>(kBf16Block) / kLanes, kRows = 2;
  for (std::uint64_t i = 0; i < kBf16Block; i += kRows, c += kRows * ldc) {
    Vec sum[kRows][kVectors];
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = add ? load(c + r * ldc + v * kLanes) : Vec{};
    const std::uint16_t* b = right;
    for (std::uint64_t o = 0; o < blocks; ++o) {
      const std::uint16_t* a = left + o * kBf16Block * kBf16Block + i * kBf16Block;
      for (std::uint64_t p = 0; p < kBf16Block; p += 2, b += 2 * kBf16Block)
        for (int v = 0; v < kVectors; ++v) {
          VecI pairs;
          __builtin_memcpy(&pairs, b + 2 * v * kLanes, sizeof pairs);
          const Vec first = reinterpret_cast<Vec>(pairs << 16),
                    second = reinterpret_cast<Vec>(pairs & (VecI{} - 0x10000));
          for (int r = 0; r < kRows; ++r) {
            const std::uint16_t* at = a + r * static_cast<int>(kBf16Block) + p;
            sum[r][v] += first * __builtin_bit_cast(float, std::uint32_t{at[0]} << 16);
            sum[r][v] += second * __builtin_bit_cast(float, std::uint32_t{at[1]} << 16);
          }
        }
    }
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) store(c + r * ldc + v * kLanes, sum[r][v]);
  }
}

#include "plugins/cpu/kernels/bf16_tiles.hpp"

extern const Bf16Kernels bf16_table;
const Bf16Kernels bf16_table = {TH_STRING(TRAINHOST_KERNEL_SET), false, pack_left, pack_right, multiply};

}  // namespace TRAINHOST_KERNEL_SET
}  // namespace trainhost::cpu
