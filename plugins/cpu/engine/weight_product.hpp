// Products with weights, and gradients of weights: row-major f32, divided into tiles that one thread each
// computes. The choice between small products (kernels/small_product.hpp), large ones (large_product.hpp, or
// OpenBLAS) and bf16 products (bf16_product.hpp) depends only on shape, precision and kernel set, so the bits
// do not depend on the number of threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "plugins/cpu/engine/bf16_product.hpp"
#include "plugins/cpu/engine/large_product.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// A grid of tiles over C[m,n]. Neighbouring tiles share their rows.
struct Grid {
  std::uint64_t rows, cols;  // of one tile
  std::uint64_t row_tiles, col_tiles;
  std::uint32_t tiles() const { return static_cast<std::uint32_t>(row_tiles * col_tiles); }
  Range row_range(std::uint32_t tile, std::uint64_t m) const {
    std::uint64_t r = tile / col_tiles * rows;
    return {r, std::min(m, r + rows)};
  }
  Range col_range(std::uint32_t tile, std::uint64_t n) const {
    std::uint64_t c = tile % col_tiles * cols;
    return {c, std::min(n, c + cols)};
  }
};
Grid small_grid(std::uint64_t m, std::uint64_t n);  // for small products: tiles over all columns
Grid large_grid(std::uint64_t m, std::uint64_t n);  // for OpenBLAS

/// Division of a weight's gradient, a sum over all tokens: the tokens into `slots`, whose results are added
/// in order, and each result into a grid. With slots, a thread processes the tokens whose activations are in
/// its cache.
struct GradientSplit {
  Grid grid;
  std::uint64_t slots;
  std::uint32_t tasks() const { return static_cast<std::uint32_t>(slots * grid.tiles()); }
};
GradientSplit gradient_split(std::uint64_t n, std::uint64_t k, std::uint64_t tokens);

/// A weight as the right operand: x w^T (forward) or dy w (backward).
enum class Right { kTransposed, kPlain };

/// True if a narrow weight needs no packing: not transposed, and its rows do not share cache sets.
inline bool reads_in_place(Right side, std::uint64_t n) {
  return side == Right::kPlain && n <= 256 && n % 128 != 0;
}

/// One tile of C = A B (+ C), A[m,k] with rows of k; B = w^T for w[n,k], or w[k,n]. By OpenBLAS.
void blas_tile(Right side, Range rows, Range cols, std::uint64_t n, std::uint64_t k, const float* a,
               const float* w, bool add, float* c);
/// Packs w into the shared workspace, in parallel. Returns the width of the panels.
std::uint64_t pack_weight(OpContext& ctx, Right side, std::uint64_t n, std::uint64_t k, const float* w);

/// C[m,n] = A[m,k] B (+ addends).
inline void product_with_weight(OpContext& ctx, Right side, std::uint64_t m, std::uint64_t n, std::uint64_t k,
                                const float* a, const float* w, const Addends& add, float* c) {
  const bool t = side == Right::kTransposed;
  auto start = [&](Range rows, Range cols) { start_tile(ctx.kernels, add, n, rows, cols, c); };
  if (ctx.bf16)
    return bf16_product(
        ctx, m, n, k, {a, k, false}, {w, t ? k : n, !t}, add.any(), c,
        {[](void* f, Range rows, Range cols) { (*static_cast<decltype(start)*>(f))(rows, cols); }, &start});
  if (!small_weight(n, k)) {
    if (ctx.own_products) return large_product(ctx, m, n, k, {a, k, false}, {w, t ? k : n, !t}, add, c);
    const Grid g = large_grid(m, n);
    ctx.pool.run(g.tiles(), [&](std::uint32_t i, std::uint32_t) {
      const Range rows = g.row_range(i, m), cols = g.col_range(i, n);
      start(rows, cols);
      blas_tile(side, rows, cols, n, k, a, w, add.any(), c);
    });
    return;
  }
  const Grid g = small_grid(m, n);
  const bool in_place = reads_in_place(side, n);
  const std::uint64_t width = in_place ? 0 : pack_weight(ctx, side, n, k, w);
  const float* packed = ctx.shared_workspace();
  ctx.pool.run(g.tiles(), [&](std::uint32_t i, std::uint32_t worker) {
    const Range rows = g.row_range(i, m), cols = g.col_range(i, n);
    start(rows, cols);
    const float* left = a + rows.begin * k;
    float* to = c + rows.begin * n;
    if (in_place)
      ctx.kernels.product(rows.size(), n, k, left, k, false, w, n, add.any(), to, n,
                          ctx.worker_workspace(worker));
    else
      ctx.kernels.product_packed(rows.size(), n, k, left, k, packed, k, width, add.any(), to, n);
  });
}

/// y[n] = x[k] w[n,k]^T (+ bias) (+ residual), of one generated token. Memory-bound, so the rows of the
/// weight are divided among the threads. bias and residual may be null.
template <class T>
void row_product(OpContext& ctx, std::uint64_t n, std::uint64_t k, const T* x, const T* w, const T* bias,
                 const T* residual, T* y) {
  constexpr std::uint64_t kSums = 64;
  ctx.over_rows(n, k, [&](std::uint64_t first, std::uint64_t rows) {
    for (std::uint64_t j = first; j < first + rows; j += kSums) {
      const std::uint64_t count = std::min(kSums, first + rows - j);
      if constexpr (std::is_same_v<T, float>) {
        for (std::uint64_t i = j; i < j + count; ++i)
          y[i] = (residual ? residual[i] : 0.0f) + (bias ? bias[i] : 0.0f);
        ctx.kernels.gemv(count, k, w + j * k, x, true, y + j);
      } else {
        float sums[kSums];
        ctx.rows<T>().gemv(count, k, w + j * k, x, false, sums);
        ctx.kernels.store_sums(1, count, sums, count, 1.0f, bias ? bias + j : nullptr,
                               residual ? residual + j : nullptr, y + j, count);
      }
    }
  });
}

/// dx[m,k] = dy[m,n] w[n,k]
inline void input_gradient(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* dy,
                           const float* w, float* dx) {
  product_with_weight(ctx, Right::kPlain, m, k, n, dy, w, {}, dx);
}
inline void input_gradient(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, const Bf16* dy,
                           const Bf16* w, Bf16* dx) {
  bf16_product(ctx, m, k, n, {dy, n, false}, {w, k, true}, {dx, k});
}

/// Computes one task of a split: the tile task % tiles of the slot task / tiles. Slot 0 writes to grad, the
/// others to the shared workspace.
void gradient_task(OpContext& ctx, const GradientSplit& split, std::uint32_t task, std::uint32_t worker,
                   std::uint64_t n, std::uint64_t k, std::uint64_t tokens, const float* dy, const float* x,
                   bool overwrite, float* grad);
/// Adds slots 1.. to the gradient.
void combine_gradient(OpContext& ctx, const GradientSplit& split, std::uint64_t n, std::uint64_t k,
                      float* grad);

/// grad[n,k] (= or +=) dy[tokens,n]^T x[tokens,k]; `more` additional tasks run in the same job.
template <class More>
void weight_gradient(OpContext& ctx, std::uint64_t n, std::uint64_t k, std::uint64_t tokens, const float* dy,
                     const float* x, bool overwrite, float* grad, std::uint32_t more, More&& more_task) {
  if (ctx.bf16) {
    bf16_product(ctx, n, k, tokens, {dy, n, true}, {x, k, true}, !overwrite, grad);
    return ctx.pool.run(more, [&](std::uint32_t i, std::uint32_t) { more_task(i); });
  }
  if (ctx.own_products && !small_weight(n, k)) {
    const auto call = [](void* f, std::uint32_t i) { (*static_cast<std::remove_reference_t<More>*>(f))(i); };
    return large_product(
        ctx, n, k, tokens, {dy, n, true}, {x, k, true}, {overwrite ? nullptr : grad}, grad,
        {more, call, const_cast<void*>(static_cast<const void*>(std::addressof(more_task)))});
  }
  const GradientSplit split = gradient_split(n, k, tokens);
  ctx.pool.run(split.tasks() + more, [&](std::uint32_t i, std::uint32_t worker) {
    if (i < split.tasks())
      gradient_task(ctx, split, i, worker, n, k, tokens, dy, x, overwrite, grad);
    else
      more_task(i - split.tasks());
  });
  if (split.slots > 1) combine_gradient(ctx, split, n, k, grad);
}

/// The same of operands that are stored in bf16.
template <class More>
void weight_gradient(OpContext& ctx, std::uint64_t n, std::uint64_t k, std::uint64_t tokens, const Bf16* dy,
                     const Bf16* x, bool overwrite, float* grad, std::uint32_t more, More&& more_task) {
  bf16_product(ctx, n, k, tokens, {dy, n, true}, {x, k, true}, !overwrite, grad);
  ctx.pool.run(more, [&](std::uint32_t i, std::uint32_t) { more_task(i); });
}

}  // namespace trainhost::cpu
