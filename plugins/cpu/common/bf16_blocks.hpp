// Blocks of a bf16 product, chosen by shape only: a block of each operand is packed into the shared
// workspace, then multiplied tile by tile. A packed block fits in the L2 caches and a panel in L1.
#pragma once
#include <algorithm>
#include <cstdint>

namespace trainhost::cpu {

struct Bf16Blocks {
  std::uint64_t rows, cols, inner;  // of one block; multiples of 32

  std::uint64_t left_floats() const { return rows * inner / 2; }  // two bf16 per float
  std::uint64_t right_floats() const { return cols * inner / 2; }
  std::uint64_t floats() const { return left_floats() + right_floats(); }
};

inline constexpr std::uint64_t kBf16Inner = 1024, kBf16Left = 2u << 20,
                               kBf16Right = 1u << 20;  // maximum elements
/// v rounded up to a multiple of 32, at least 32.
inline std::uint64_t up32(std::uint64_t v) { return std::max<std::uint64_t>(v + 31, 32) / 32 * 32; }

/// Blocks for C[m,n] = A[m,k] B[k,n].
inline Bf16Blocks bf16_blocks(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t parts = std::max<std::uint64_t>((k + kBf16Inner - 1) / kBf16Inner, 1),
                      inner = up32((k + parts - 1) / parts);
  return {std::min(up32(m), kBf16Left / inner / 32 * 32), std::min(up32(n), kBf16Right / inner / 32 * 32),
          inner};
}

/// Floats that are sufficient for the blocks of any product up to these sizes; used for planning. The blocks
/// of a smaller product can be larger (fewer inner elements, more rows); this bound does not grow.
inline std::uint64_t max_bf16_block_floats(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t inner = std::min(up32(k), kBf16Inner);
  return (std::min(up32(m) * inner, kBf16Left) + std::min(up32(n) * inner, kBf16Right)) / 2;
}

}  // namespace trainhost::cpu
