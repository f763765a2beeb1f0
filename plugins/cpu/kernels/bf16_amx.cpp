// bf16 products by AMX: a tile register holds 16 rows of 64 bytes, and one instruction multiplies 16 x 32 by
// 32 x 16. A tile of C takes 2 x 2 of them. The process must have requested the tile registers from the
// operating system (select_kernels.cpp). Same rule about headers as kernels_isa.cpp.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "plugins/cpu/kernels/bf16.hpp"

extern "C" double log(double) noexcept(true);

namespace trainhost::cpu {
namespace amx {
#include "plugins/cpu/kernels/bf16_pack_avx512.hpp"

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Static, because the compiler assumes that _tile_loadconfig() reads only the first bytes of its argument.
static constexpr TileShapes kShapes;
// Inner elements of a panel that stay in the L1 cache.
constexpr std::uint64_t kInner = 512;
static inline void begin_blocks() { _tile_loadconfig(&kShapes); }
static inline void end_blocks() { _tile_release(); }

// The compiler may move stores of vectors behind loads of tile registers, of which it does not know that they
// read memory.
static inline __attribute__((always_inline)) void finish_stores() { __asm__ volatile("" ::: "memory"); }

// Loads a 32 x 32 tile of C, with rows of ldc, into tile registers 0 to 3, or zeros; and stores it.
static inline __attribute__((always_inline)) void load_sums(bool add, const float* c, std::uint64_t ldc) {
  if (add) {
    _tile_loadd(0, c, ldc * 4);
    _tile_loadd(1, c + 16, ldc * 4);
    _tile_loadd(2, c + 16 * ldc, ldc * 4);
    _tile_loadd(3, c + 16 * ldc + 16, ldc * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
}
static inline __attribute__((always_inline)) void store_sums(float* c, std::uint64_t ldc) {
  _tile_stored(0, c, ldc * 4);
  _tile_stored(1, c + 16, ldc * 4);
  _tile_stored(2, c + 16 * ldc, ldc * 4);
  _tile_stored(3, c + 16 * ldc + 16, ldc * 4);
}

// One 32 x 32 tile of C in tile registers 0 to 3; 4 and 5 hold two halves of the strip, 6 and 7 two halves of
// the panel. A packed block has 32 x 32 = 1024 elements.
static void block(std::uint64_t, std::uint64_t first, std::uint64_t inner, const std::uint16_t* left,
                  const std::uint16_t* right, std::uint64_t, std::uint64_t, bool add, float* c,
                  std::uint64_t ldc) {
  left += first * kBlock, right += first * kBlock;
  const std::uint64_t blocks = inner / kBf16InnerUnit;
  finish_stores();
  load_sums(add, c, ldc);
  for (std::uint64_t o = 0; o < blocks; ++o, left += 1024, right += 1024) {
    _tile_loadd(4, left, 64);
    _tile_loadd(6, right, 128);
    _tile_loadd(7, right + 32, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, left + 512, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  store_sums(c, ldc);
}

// The same of 32 rows of a left operand that is not packed.
constexpr std::uint64_t kInnerOfRows = 512;
static void rows_block(std::uint64_t inner, const std::uint16_t* left, std::uint64_t ld,
                       const std::uint16_t* right, bool add, float* c, std::uint64_t ldc) {
  finish_stores();
  load_sums(add, c, ldc);
  for (std::uint64_t p = 0; p < inner; p += 32, left += 32, right += 1024) {
    _tile_loadd(4, left, ld * 2);
    _tile_loadd(6, right, 128);
    _tile_loadd(7, right + 32, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, left + 16 * ld, ld * 2);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  store_sums(c, ldc);
}

#include "plugins/cpu/kernels/bf16_tiles.hpp"

// 512 inner elements of 32 rows stay in the L1 cache while all panels pass through the registers.
static void multiply_rows(std::uint64_t rows, std::uint64_t cols, std::uint64_t k, const std::uint16_t* left,
                          std::uint64_t ld, const void* panels, bool add, float* c, std::uint64_t ldc,
                          float* spare) {
  begin_blocks();
  for (std::uint64_t p = 0; p < k; p += kInnerOfRows) {
    const std::uint64_t part = k - p < kInnerOfRows ? k - p : kInnerOfRows;
    const bool adds = add || p > 0;
    for (std::uint64_t i = 0; i < rows; i += kBlock) {
      const auto* right = static_cast<const std::uint16_t*>(panels) + p * kBlock;
      for (std::uint64_t j = 0; j < cols; j += kBlock, right += k * kBlock) {
        float* const to = c + i * ldc + j;
        const std::uint64_t width = cols - j < kBlock ? cols - j : kBlock;
        if (width == kBlock) {
          rows_block(part, left + i * ld + p, ld, right, adds, to, ldc);
          continue;
        }
        if (adds) copy_tile(kBlock, width, to, ldc, spare, kBlock);
        rows_block(part, left + i * ld + p, ld, right, adds, spare, kBlock);
        copy_tile(kBlock, width, spare, kBlock, to, ldc);
      }
    }
  }
  end_blocks();
}

using Bf16 = std::uint16_t;
#include "plugins/cpu/kernels/attention_amx.hpp"

#include "plugins/cpu/kernels/attention_amx_bwd.hpp"

static constexpr Bf16AttentionKernels kAttention = {attention::bytes, attention::forward,
                                                    attention::backward};
extern const Bf16Kernels bf16_table;
const Bf16Kernels bf16_table = {"amx",     true,       kBlock,   sizeof(Element), 128,        256,
                                pack_left, pack_right, multiply, multiply_rows,   &kAttention};

}  // namespace amx
}  // namespace trainhost::cpu
