// Matrix products with operands rounded to bfloat16, f32 in memory on both sides. All threads pack a block of
// each operand, then multiply it tile by tile. Cut by shape alone, as in product.hpp, so bits depend on shape
// and kernel set.
#pragma once
#include "plugins/cpu/engine/exec.hpp"

namespace trainhost::cpu {

/// An operand that is read as [outer, inner]; element (i, p) is at[i * ld + p], or at[p * ld + i] if
/// inner_is_row.
struct Bf16Operand {
  const float* at;
  std::uint64_t ld;
  bool inner_is_row;
};

/// Something to do to each tile of C before anything is added to it. Called once a tile; tiles cover C.
struct TileHook {
  void (*call)(void* context, Range rows, Range cols) = nullptr;
  void* context = nullptr;
};

/// C[m,n] (= or +=) A[m,k] B[n,k]^T; C has rows of n. The work space is the planned one: see workspace.hpp.
void bf16_product(Exec& e, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a, Bf16Operand b,
                  bool add, float* c, TileHook before = {});

}  // namespace trainhost::cpu
