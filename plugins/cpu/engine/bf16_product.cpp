// For each block of rows, of columns and of the inner dimension: all threads pack the operands, then multiply
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
  const Bf16Kernels& kernels;
  decltype(Bf16Kernels::pack_left) pack;
  Bf16Operand from;
  Range outer, inner;
  std::byte* to;

  std::uint32_t tasks() const { return static_cast<std::uint32_t>(ceil_div(outer.size(), kernels.block)); }
  void run(std::uint32_t task) const {
    const std::uint64_t first = outer.begin + task * kernels.block,
                        count = std::min(kernels.block, outer.end - first);
    const std::uint64_t offset =
        from.inner_is_row ? inner.begin * from.ld + first : first * from.ld + inner.begin;
    pack(count, inner.size(), static_cast<const std::byte*>(from.at) + offset * from.element_bytes(),
         from.stored, from.ld, from.inner_is_row,
         to + task * kernels.step(inner.size()) * kernels.element_bytes);
  }
};

// The largest tiles of the kernels, or smaller ones until there are eight.
struct Tiles {
  std::uint64_t rows, cols, row_tiles, col_tiles;
  Tiles(const Bf16Kernels& k, std::uint64_t m, std::uint64_t n) : rows(k.tile_rows), cols(k.tile_cols) {
    for (count(m, n); row_tiles * col_tiles < 8 && (rows > k.block || cols > 2 * k.block); count(m, n)) {
      if (cols > 2 * k.block)
        cols /= 2;
      else
        rows /= 2;
    }
  }
  void count(std::uint64_t m, std::uint64_t n) {
    row_tiles = ceil_div(m, rows), col_tiles = ceil_div(n, cols);
  }
};

// One tile of C in one inner block.
struct PackedTile {
  Range rows, cols;               // of C
  std::uint64_t row, col;         // of the tile in its block
  bool first, last;               // of the inner blocks
  const std::byte *left, *right;  // packed
  std::uint64_t inner;
  std::uint32_t worker;
};

// Calls tile(PackedTile) for every tile of every block, on all threads.
template <class F>
void over_tiles(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, const Bf16Operand& a,
                const Bf16Operand& b, F&& tile) {
  const Bf16Kernels& kernels = *ctx.bf16;
  const Bf16Blocks size = bf16_blocks(m, n, k);
  assert(size.floats() <= shared_floats(ctx.model(), ctx.program.run, ctx.program.traits));
  auto* left = reinterpret_cast<std::byte*>(ctx.shared_workspace());
  auto* right = reinterpret_cast<std::byte*>(ctx.shared_workspace() + size.left_floats());
  for (std::uint64_t i = 0; i < m; i += size.rows)
    for (std::uint64_t j = 0; j < n; j += size.cols)
      for (std::uint64_t p = 0; p < k; p += size.inner) {
        const Range inner = {p, std::min(k, p + size.inner)};
        const Packing rows = {kernels, kernels.pack_left, a, {i, std::min(m, i + size.rows)}, inner, left},
                      cols = {kernels, kernels.pack_right, b, {j, std::min(n, j + size.cols)}, inner, right};
        // With one inner block the rows stay packed for all blocks of columns.
        const std::uint32_t first = j == 0 || size.inner < k ? rows.tasks() : 0;
        ctx.pool.run(first + cols.tasks(), [&](std::uint32_t task, std::uint32_t) {
          if (task < first)
            rows.run(task);
          else
            cols.run(task - first);
        });
        const Tiles tiles(kernels, rows.outer.size(), cols.outer.size());
        const std::uint64_t step = kernels.step(inner.size()) / kernels.block * kernels.element_bytes;
        ctx.pool.run(static_cast<std::uint32_t>(tiles.row_tiles * tiles.col_tiles),
                     [&](std::uint32_t t, std::uint32_t worker) {
                       const std::uint64_t r0 = t % tiles.row_tiles * tiles.rows,
                                           c0 = t / tiles.row_tiles * tiles.cols;
                       tile(PackedTile{{i + r0, std::min(rows.outer.end, i + r0 + tiles.rows)},
                                       {j + c0, std::min(cols.outer.end, j + c0 + tiles.cols)},
                                       r0,
                                       c0,
                                       p == 0,
                                       inner.end == k,
                                       left + r0 * step,
                                       right + c0 * step,
                                       inner.size(),
                                       worker});
                     });
      }
}

}  // namespace

void bf16_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a,
                  Bf16Operand b, bool add, float* c, TileHook before) {
  over_tiles(ctx, m, n, k, a, b, [&](const PackedTile& t) {
    if (t.first && before.call) before.call(before.context, t.rows, t.cols);
    ctx.bf16->multiply(t.rows.size(), t.cols.size(), t.inner, t.left, t.right, add || !t.first,
                       c + t.rows.begin * n + t.cols.begin, n, ctx.worker_workspace(t.worker));
  });
}

// Sums are f32 until the last inner block: with one, in the thread's workspace, else those of the whole block
// in the shared one.
void bf16_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a,
                  Bf16Operand b, const Bf16Result& to) {
  const Bf16Blocks size = bf16_blocks(m, n, k);
  float* const block = ctx.shared_workspace() + size.left_floats() + size.right_floats();
  assert(kBf16Spare + ctx.bf16->tile_rows * ctx.bf16->tile_cols <= kProductWork);
  over_tiles(ctx, m, n, k, a, b, [&](const PackedTile& t) {
    float* const spare = ctx.worker_workspace(t.worker);
    const bool one = t.first && t.last;
    const std::uint64_t ld = one ? ctx.bf16->tile_cols : size.cols;
    float* const sums = one ? spare + kBf16Spare : block + t.row * ld + t.col;
    ctx.bf16->multiply(t.rows.size(), t.cols.size(), t.inner, t.left, t.right, !t.first, sums, ld, spare);
    if (!t.last) return;
    const std::uint64_t at = t.rows.begin * to.ld + t.cols.begin;
    ctx.kernels.store_sums(t.rows.size(), t.cols.size(), sums, ld, to.scale,
                           to.bias ? to.bias + t.cols.begin : nullptr,
                           to.residual ? to.residual + at : nullptr, to.c + at, to.ld);
  });
}

}  // namespace trainhost::cpu
