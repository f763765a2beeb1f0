// Products of large shapes in f32 by the trainer's own kernels (kernels/large_product.hpp), divided among the
// threads. The inner elements are divided by their number only, so the bits of a result depend on its shape
// and the kernel set.
#pragma once
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// The L2 cache of this CPU, 1 MiB if it is unknown.
std::uint64_t l2_bytes();

/// An operand that is read as [outer, inner]; element (i, p) is at[i * ld + p], or at[p * ld + i] if
/// inner_is_row.
struct LargeOperand {
  const float* at;
  std::uint64_t ld;
  bool inner_is_row;
  const float* from(std::uint64_t i, std::uint64_t p) const {
    return at + (inner_is_row ? p * ld + i : i * ld + p);
  }
  /// The rows in memory of the elements [i, i + outer) x [p, p + inner).
  LargeAhead rows(std::uint64_t i, std::uint64_t outer, std::uint64_t p, std::uint64_t inner) const {
    return {from(i, p), inner_is_row ? inner : outer, inner_is_row ? outer : inner, ld};
  }
};

/// Additional tasks that run together with the first tiles.
struct MoreTasks {
  std::uint32_t count = 0;
  void (*call)(void* context, std::uint32_t task) = nullptr;
  void* context = nullptr;
};

/// What a product is added to: residual [m,n] and bias [n], both with rows of n; each may be null, and
/// residual may be C.
struct Addends {
  const float *residual = nullptr, *bias = nullptr;
  bool any() const { return residual || bias; }
};
/// C = the addends, in a tile.
void start_tile(const Kernels& kernels, const Addends& add, std::uint64_t n, Range rows, Range cols,
                float* c);

/// C[m,n] = A[m,k] B[n,k]^T (+ addends); C has rows of n. Uses the threads' parts of the workspace
/// (common/workspace.hpp).
void large_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, LargeOperand a,
                   LargeOperand b, Addends add, float* c, MoreTasks more = {});

}  // namespace trainhost::cpu
