// Products of large shapes in f32 by the trainer's own kernels (kernels/large_product.hpp), divided among the
// threads. The inner elements are divided by their number only, so the bits of a result depend on its shape
// and the kernel set.
#pragma once
#include "plugins/cpu/engine/bf16_product.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// An operand that is read as [outer, inner]; element (i, p) is at[i * ld + p], or at[p * ld + i] if
/// inner_is_row.
struct LargeOperand {
  const float* at;
  std::uint64_t ld;
  bool inner_is_row;
  const float* from(std::uint64_t i, std::uint64_t p) const {
    return at + (inner_is_row ? p * ld + i : i * ld + p);
  }
};

/// Additional tasks that run together with the first tiles.
struct MoreTasks {
  std::uint32_t count = 0;
  void (*call)(void* context, std::uint32_t task) = nullptr;
  void* context = nullptr;
};

/// C[m,n] (= or +=) A[m,k] B[n,k]^T; C has rows of n. before(rows, cols) runs on each tile before anything is
/// added to it. Uses the threads' parts of the workspace (common/workspace.hpp).
void large_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, LargeOperand a,
                   LargeOperand b, bool add, float* c, TileHook before = {}, MoreTasks more = {});

}  // namespace trainhost::cpu
