// Matrix products of bfloat16 operands with sums in f32. Operands are stored in bfloat16, or in f32 and
// rounded to nearest, ties to even. Both are packed first. One table per kind of instruction; chosen at run
// time (select_kernels.cpp). Callers: engine/bf16_product.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trainhost::cpu {

// The left operand is packed into strips of `block` rows, the right one into panels of as many columns.
// Tables with bf16 instructions (block 32) have elements of 2 bytes, and inner elements are filled up with
// zeros to a multiple of 32; the others (block 48) have elements of 4 bytes:
//   left   [k/32][32 rows][32 inner]                 by_f32: [k][48 rows]
//   right  [k/32][16 pairs of inner][32 columns][2]  by_f32: panels [k][3 vectors of columns]
// Rows and columns beyond the operand are zeros.

/// A multiple of every block; inner elements are packed in multiples of 32.
inline constexpr std::uint64_t kBf16Unit = 96, kBf16InnerUnit = 32;
/// Floats that multiply() needs for an incomplete tile.
inline constexpr std::uint64_t kBf16Spare = 48 * 48;

/// Attention of one sequence by bf16 instructions: shape and distances. Heads are rows of d elements.
struct Bf16Attention {
  std::uint32_t seq, d, window;  // window: keys per query, its own position included; 0 = all up to it
  std::uint32_t group;           // query heads per key/value head
  std::uint64_t ld, ld_o;        // elements between rows of qkv and of outputs
  std::uint64_t ld_lse;          // floats between the lse of two queries of a head
  float scale;                   // 1/sqrt(d)
  const std::int32_t* starts;    // by query: the first key of its document; null: one document
};
/// Queries that forward() processes at most, and a multiple of which it begins at.
inline constexpr std::uint32_t kBf16AttentionQueries = 256;

/// Results are rounded once; softmax and sums are f32. Pointers are those of a head in the first row of the
/// sequence. memory: bytes(), aligned to 64.
struct Bf16AttentionKernels {
  std::uint64_t (*bytes)(const Bf16Attention&);
  // o and lse of the queries [q_begin, q_end) of one head.
  void (*forward)(const Bf16Attention&, const std::uint16_t* q, const std::uint16_t* k,
                  const std::uint16_t* v, std::uint32_t q_begin, std::uint32_t q_end, std::uint16_t* o,
                  float* lse, void* memory);
  // Gradients of one key/value head and of the query heads that share it, which are d elements apart in q,
  // d_o and dq and 1 in lse. delta[group][seq]: dot(o, d_o).
  void (*backward)(const Bf16Attention&, const std::uint16_t* q, const std::uint16_t* k,
                   const std::uint16_t* v, const std::uint16_t* d_o, const float* lse, const float* delta,
                   std::uint16_t* dq, std::uint16_t* dk, std::uint16_t* dv, void* memory);
};

struct Bf16Kernels {
  const char*
      name;  // "scalar", "avx2", "avx512": by conversion to f32; "avx512_bf16", "amx": the CPU's own products
  bool native;
  std::uint64_t block, element_bytes;  // of packed operands
  std::uint64_t tile_rows,
      tile_cols;  // of the largest part of C that one thread computes: multiples of block

  // Strip or panel of `count` <= block rows or columns over `k` inner elements. Element (i, p) is at[i * ld +
  // p], or at[p * ld + i] if `inner_is_row`, a bfloat16 or a float. to: block * round_up(k, 32) elements.
  void (*pack_left)(std::uint64_t count, std::uint64_t k, const void* at, bool bf16, std::uint64_t ld,
                    bool inner_is_row, void* to);
  void (*pack_right)(std::uint64_t count, std::uint64_t k, const void* at, bool bf16, std::uint64_t ld,
                     bool inner_is_row, void* to);

  // C[rows, cols] (= or +=) strips times panels over `k` inner elements. spare: kBf16Spare floats.
  void (*multiply)(std::uint64_t rows, std::uint64_t cols, std::uint64_t k, const void* strips,
                   const void* panels, bool add, float* c, std::uint64_t ldc, float* spare);
  // The same of a left operand that is not packed: rows of bf16, ld elements apart; rows are a multiple of
  // block, k of 32. Null: the left operand must be packed.
  void (*multiply_rows)(std::uint64_t rows, std::uint64_t cols, std::uint64_t k, const std::uint16_t* left,
                        std::uint64_t ld, const void* panels, bool add, float* c, std::uint64_t ldc,
                        float* spare);
  /// Null: attention of heads that are stored in bf16 is computed in f32.
  const Bf16AttentionKernels* attention;

  /// Elements from one packed strip or panel of k inner elements to the next.
  std::uint64_t step(std::uint64_t k) const {
    return block * (native ? (k + kBf16InnerUnit - 1) / kBf16InnerUnit * kBf16InnerUnit : k);
  }
};

/// The fastest table that this CPU can run, or the one named by TRAINHOST_CPU_ISA = scalar | avx2 | avx512 |
/// avx512_bf16 | amx. Throws usage_error if the name is unknown or the CPU cannot run the table.
const Bf16Kernels& select_bf16_kernels();

/// True for CPUs on which vdpbf16ps has a quarter of the rate of an FMA instruction, so half of its FLOPs:
/// Intel since Sapphire Rapids. Conversion to f32 is then faster. Cooper Lake and AMD (Zen 4: twice the
/// FLOPs) use the instruction. A table, not a measurement, so that the bits of a run do not change from one
/// start to the next. signature: eax of CPUID leaf 1.
bool vdpbf16ps_is_slow(bool intel, unsigned signature);

/// Tables that this CPU can run, slowest first.
const Bf16Kernels* const* runnable_bf16_kernels(std::size_t* count);

}  // namespace trainhost::cpu
