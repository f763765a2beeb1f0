// Matrix products in bf16: operands are stored in bfloat16, or in f32 and rounded; sums are f32; the result
// is f32, or rounded to bfloat16 once. The order of the sums of an element depends only on the shape, as in
// weight_product.hpp, so the bits depend on shape and kernel set.
#pragma once
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// An operand that is read as [outer, inner]; element (i, p) is at[i * ld + p], or at[p * ld + i] if
/// inner_is_row.
struct Bf16Operand {
  const void* at;
  bool stored;  // in bfloat16; else in f32
  std::uint64_t ld;
  bool inner_is_row;

  Bf16Operand(const float* from, std::uint64_t row, bool transposed)
      : at(from), stored(false), ld(row), inner_is_row(transposed) {}
  Bf16Operand(const Bf16* from, std::uint64_t row, bool transposed)
      : at(from), stored(true), ld(row), inner_is_row(transposed) {}
  std::uint64_t element_bytes() const { return stored ? sizeof(Bf16) : sizeof(float); }
};

/// Called once for each tile of C before products are added to it; the tiles cover C.
struct TileHook {
  void (*call)(void* context, Range rows, Range cols) = nullptr;
  void* context = nullptr;
};

/// C[m,n] (= or +=) A[m,k] B[n,k]^T; C has rows of n. Uses the shared workspace (workspace.hpp).
void bf16_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a,
                  Bf16Operand b, bool add, float* c, TileHook before = {});
/// Where a rounded result goes: c[m,n] = scale * sums (+ bias) (+ residual). bias [n] and residual may be
/// null; residual may be c. c and residual have rows of ld elements.
struct Bf16Result {
  Bf16* c;
  std::uint64_t ld;
  const Bf16 *bias = nullptr, *residual = nullptr;
  float scale = 1.0f;
};
/// The result of A B^T.
void bf16_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a,
                  Bf16Operand b, const Bf16Result& to);

}  // namespace trainhost::cpu
