// Matrix products with operands rounded to bfloat16; operands and result are f32 in memory. All threads pack
// a block of each operand, then multiply it tile by tile. The division depends only on the shape, as in
// weight_product.hpp, so the bits depend on shape and kernel set.
#pragma once
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// An operand that is read as [outer, inner]; element (i, p) is at[i * ld + p], or at[p * ld + i] if
/// inner_is_row.
struct Bf16Operand {
  const float* at;
  std::uint64_t ld;
  bool inner_is_row;
};

/// Called once for each tile of C before products are added to it; the tiles cover C.
struct TileHook {
  void (*call)(void* context, Range rows, Range cols) = nullptr;
  void* context = nullptr;
};

/// C[m,n] (= or +=) A[m,k] B[n,k]^T; C has rows of n. Uses the shared workspace (workspace.hpp).
void bf16_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a,
                  Bf16Operand b, bool add, float* c, TileHook before = {});

}  // namespace trainhost::cpu
