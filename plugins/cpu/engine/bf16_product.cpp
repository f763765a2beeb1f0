// For each block of the inner dimension, of rows and of columns: all threads pack the operands, then multiply
// the packed block tile by tile. Tiles are numbered column by column, so that the panels that a thread uses
// stay in its cache. See bf16_product.hpp; layout of packed operands: kernels/bf16.hpp.
#include "plugins/cpu/engine/bf16_product.hpp"

#include <algorithm>
#include <cassert>

#include "plugins/cpu/common/workspace.hpp"
#include "plugins/cpu/kernels/bf16.hpp"

namespace trainhost::cpu {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Packs the ranges `outer` and `inner` of an operand; one task per strip or panel.
struct Packing {
  decltype(Bf16Kernels::pack_left) pack;
  Bf16Operand from;
  Range outer, inner;
  std::uint16_t* to;

  std::uint32_t tasks() const { return static_cast<std::uint32_t>(ceil_div(outer.size(), kBf16Block)); }
  void run(std::uint32_t task) const {
    const std::uint64_t first = outer.begin + task * kBf16Block,
                        count = std::min(kBf16Block, outer.end - first);
    const std::uint64_t padded = ceil_div(inner.size(), kBf16Block) * kBf16Block;
    const std::uint64_t offset =
        from.inner_is_row ? inner.begin * from.ld + first : first * from.ld + inner.begin;
    pack(count, inner.size(), from.at + offset, from.ld, from.inner_is_row, to + task * kBf16Block * padded);
  }
};

// Tiles of 128 x 256, or smaller ones until there are eight.
struct Tiles {
  std::uint64_t rows = 128, cols = 256, row_tiles, col_tiles;
  Tiles(std::uint64_t m, std::uint64_t n) {
    for (count(m, n); row_tiles * col_tiles < 8 && (rows > 32 || cols > 64); count(m, n)) {
      if (cols > 64)
        cols /= 2;
      else
        rows /= 2;
    }
  }
  void count(std::uint64_t m, std::uint64_t n) {
    row_tiles = ceil_div(m, rows), col_tiles = ceil_div(n, cols);
  }
};

}  // namespace

void bf16_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a,
                  Bf16Operand b, bool add, float* c, TileHook before) {
  const Bf16Kernels& kernels = *ctx.bf16;
  const Bf16Blocks size = bf16_blocks(m, n, k);
  assert(size.floats() <= shared_floats(ctx.model(), ctx.program.run, ctx.program.traits));
  auto* left = reinterpret_cast<std::uint16_t*>(ctx.shared_workspace());
  auto* right = reinterpret_cast<std::uint16_t*>(ctx.shared_workspace() + size.left_floats());
  for (std::uint64_t p = 0; p < k; p += size.inner) {
    const Range inner = {p, std::min(k, p + size.inner)};
    const std::uint64_t blocks = ceil_div(inner.size(), kBf16Block),
                        step = blocks * kBf16Block;  // step: elements per outer index
    for (std::uint64_t i = 0; i < m; i += size.rows) {
      const Packing rows = {kernels.pack_left, a, {i, std::min(m, i + size.rows)}, inner, left};
      for (std::uint64_t j = 0; j < n; j += size.cols) {
        const Packing cols = {kernels.pack_right, b, {j, std::min(n, j + size.cols)}, inner, right};
        // The rows are packed once per row block, together with the first column block.
        const std::uint32_t first = j == 0 ? rows.tasks() : 0;
        ctx.pool.run(first + cols.tasks(), [&](std::uint32_t task, std::uint32_t) {
          if (task < first)
            rows.run(task);
          else
            cols.run(task - first);
        });
        const Tiles tiles(rows.outer.size(), cols.outer.size());
        ctx.pool.run(static_cast<std::uint32_t>(tiles.row_tiles * tiles.col_tiles),
                     [&](std::uint32_t t, std::uint32_t worker) {
                       const std::uint64_t r0 = t % tiles.row_tiles * tiles.rows,
                                           c0 = t / tiles.row_tiles * tiles.cols;
                       const Range r = {i + r0, std::min(rows.outer.end, i + r0 + tiles.rows)};
                       const Range s = {j + c0, std::min(cols.outer.end, j + c0 + tiles.cols)};
                       // Products of later inner blocks add to those of the first one.
                       if (p == 0 && before.call) before.call(before.context, r, s);
                       kernels.multiply(r.size(), s.size(), blocks, left + r0 * step, right + c0 * step,
                                        add || p > 0, c + r.begin * n + s.begin, n,
                                        ctx.worker_workspace(worker));
                     });
      }
    }
  }
}

}  // namespace trainhost::cpu
