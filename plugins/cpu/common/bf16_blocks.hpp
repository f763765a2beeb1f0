// How a bf16 product is cut, from its shape alone: a block of each operand is packed into the shared work space, then
// multiplied tile by tile. Sizes are such that a packed block stays in the second-level caches and a panel in the first.
#pragma once
#include <algorithm>
#include <cstdint>

namespace trainhost::cpu {

struct Bf16Blocks {
  std::uint64_t rows, cols, inner;  // of a block; multiples of 32

  std::uint64_t left_floats() const { return rows * inner / 2; }  // two bf16 in the space of a float
  std::uint64_t right_floats() const { return cols * inner / 2; }
  std::uint64_t floats() const { return left_floats() + right_floats(); }
};

/// Of C[m,n] = A[m,k] B[k,n]. Grows with m and n, so that the blocks of fewer rows fit where those of more do.
inline Bf16Blocks bf16_blocks(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  constexpr std::uint64_t kInner = 1024, kLeft = 2u << 20, kRight = 1u << 20;  // elements
  auto up = [](std::uint64_t v) { return std::max<std::uint64_t>(v + 31, 32) / 32 * 32; };
  const std::uint64_t parts = std::max<std::uint64_t>((k + kInner - 1) / kInner, 1), inner = up((k + parts - 1) / parts);
  return {std::min(up(m), kLeft / inner / 32 * 32), std::min(up(n), kRight / inner / 32 * 32), inner};
}

}  // namespace trainhost::cpu
