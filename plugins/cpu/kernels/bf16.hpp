// Matrix products whose operands are rounded to bfloat16 and whose sums are f32. Both operands are packed
// from f32 first, so weights and activations stay f32 in memory and only the workspace contains bf16 copies.
// One table per kind of instruction; chosen at run time (select_kernels.cpp). Callers:
// engine/bf16_product.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trainhost::cpu {

// Packed left operand:  strips of 32 rows    [k/32][32 rows][32 inner]
// Packed right operand: panels of 32 columns [k/32][16 pairs of inner][32 columns][2 inner]
// Rows, columns and inner elements beyond the operand are zeros. Rounding is to nearest, ties to even.

/// Rows of a strip, columns of a panel, and inner elements that a kernel processes at a time.
inline constexpr std::uint64_t kBf16Block = 32;
/// Floats that multiply() needs for an incomplete tile.
inline constexpr std::uint64_t kBf16Spare = kBf16Block * kBf16Block;

struct Bf16Kernels {
  const char*
      name;  // "scalar", "avx2", "avx512": by conversion to f32; "avx512_bf16", "amx": the CPU's own products
  bool native;

  // Strip or panel of `count` <= 32 rows or columns over `k` inner elements. Element (i, p) is at[i * ld +
  // p], or at[p * ld + i] if `inner_is_row`. to: 32 * round_up(k, 32) elements.
  void (*pack_left)(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                    bool inner_is_row, std::uint16_t* to);
  void (*pack_right)(std::uint64_t count, std::uint64_t k, const float* at, std::uint64_t ld,
                     bool inner_is_row, std::uint16_t* to);

  // C[rows, cols] (= or +=) strips times panels; `blocks` = round_up(k, 32) / 32. spare: kBf16Spare floats.
  void (*multiply)(std::uint64_t rows, std::uint64_t cols, std::uint64_t blocks, const std::uint16_t* strips,
                   const std::uint16_t* panels, bool add, float* c, std::uint64_t ldc, float* spare);
};

/// The fastest table that this CPU can run, or the one named by TRAINHOST_CPU_ISA = scalar | avx2 | avx512 |
/// avx512_bf16 | amx. Throws usage_error if the name is unknown or the CPU cannot run the table.
const Bf16Kernels& select_bf16_kernels();

/// Tables that this CPU can run, slowest first.
const Bf16Kernels* const* runnable_bf16_kernels(std::size_t* count);

}  // namespace trainhost::cpu
