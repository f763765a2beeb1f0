// bf16 products on CPUs without bf16 instructions: operands are widened to f32 when they are packed and
// multiplied by the register tile of small_product.hpp. Products of two bfloat16 are exact in f32. Part of
// kernels_isa.cpp.
#pragma once

namespace by_f32 {

constexpr std::uint64_t kBlock = 48;   // whole register tiles of every instruction set
constexpr std::uint64_t kInner = 128;  // inner elements of a panel that stay in the L1 cache
constexpr std::uint64_t kPanel = 3 * kLanes;
static_assert(kBlock % kPanel == 0 && kBlock % kRows3 == 0);

// Packed left operand: [k][48 rows]. Packed right operand: 48 / kPanel panels [k][kPanel columns].
template <class T>
TH_INLINE void pack_as(std::uint64_t count, std::uint64_t k, const T* at, std::uint64_t ld, bool inner_is_row,
                       std::uint64_t width, float* to) {
  if (count < kBlock) __builtin_memset(to, 0, kBlock * k * sizeof(float));
  if (inner_is_row)
    pack(count, k, at, ld, width, to);
  else
    pack_transposed(count, k, at, ld, width, to);
}
TH_INLINE void pack_block(std::uint64_t count, std::uint64_t k, const void* at, bool bf16, std::uint64_t ld,
                          bool inner_is_row, std::uint64_t width, void* to) {
  if (bf16)
    pack_as(count, k, static_cast<const Bf16*>(at), ld, inner_is_row, width, static_cast<float*>(to));
  else
    pack_as(count, k, static_cast<const RoundedF32*>(at), ld, inner_is_row, width, static_cast<float*>(to));
}
static void pack_left(std::uint64_t count, std::uint64_t k, const void* at, bool bf16, std::uint64_t ld,
                      bool inner_is_row, void* to) {
  pack_block(count, k, at, bf16, ld, inner_is_row, kBlock, to);
}
static void pack_right(std::uint64_t count, std::uint64_t k, const void* at, bool bf16, std::uint64_t ld,
                       bool inner_is_row, void* to) {
  pack_block(count, k, at, bf16, ld, inner_is_row, kPanel, to);
}

typedef float Element;
TH_INLINE std::uint64_t packed_inner(std::uint64_t k) { return k; }
TH_INLINE void begin_blocks() {}
TH_INLINE void end_blocks() {}

// Whole register tiles that contain rows x cols.
static void block(std::uint64_t k, std::uint64_t first, std::uint64_t inner, const float* left,
                  const float* right, std::uint64_t rows, std::uint64_t cols, bool add, float* c,
                  std::uint64_t ldc) {
  left += first * kBlock, right += first * kPanel;
  for (std::uint64_t j = 0; j < cols; j += kPanel)
    for (std::uint64_t i = 0; i < rows; i += kRows3)
      register_tile<kRows3, 3, false>(inner, left + i, 1, kBlock, right + j * k, kPanel, add, c + i * ldc + j,
                                      ldc, 0);
}

#include "plugins/cpu/kernels/bf16_tiles.hpp"

}  // namespace by_f32

extern const Bf16Kernels bf16_table;
const Bf16Kernels bf16_table = {TH_STRING(TRAINHOST_KERNEL_SET),
                                false,
                                by_f32::kBlock,
                                sizeof(by_f32::Element),
                                96,
                                192,
                                by_f32::pack_left,
                                by_f32::pack_right,
                                by_f32::multiply,
                                nullptr,
                                nullptr};
