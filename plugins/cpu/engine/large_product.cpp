// Tiles of a large product. A worker owns neighbouring tiles of one block of columns, which it packs once;
// that keeps packed operands in the caches of the core that reads them. See large_product.hpp; reasons:
// plugins/cpu/README.md.
#include "plugins/cpu/engine/large_product.hpp"

#include <unistd.h>

#include <cstring>

namespace trainhost::cpu {
namespace {

// Rows of a tile, approximately, and tiles of a thread at least: tasks are short enough for cores of unequal
// speed.
constexpr std::uint64_t kLargeTileRows = 192, kTilesPerThread = 3;

// The L2 cache of this CPU, 1 MiB if it is unknown.
std::uint64_t l2_bytes() {
  static const std::uint64_t bytes = [] {
    const long size = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? static_cast<std::uint64_t>(size) : std::uint64_t{1} << 20;
  }();
  return bytes;
}
// Columns of a packed block: up to five eighths of the L2 cache.
std::uint64_t block_columns() {
  return std::clamp<std::uint64_t>(
      l2_bytes() * 5 / 8 / (kLargeInner * sizeof(float)) / kLargeColumnStep * kLargeColumnStep, 128,
      kLargeColumns);
}
// Whether the L2 cache has space for a packed block, the next one unpacked, and the rows that pass.
bool fetches_next_block() { return l2_bytes() >= 3 * kLargePanels * sizeof(float); }

std::uint64_t parts_of(std::uint64_t whole, std::uint64_t most) { return (whole + most - 1) / most; }
// The largest of `parts` equal parts, a multiple of `step`.
std::uint64_t even_part(std::uint64_t whole, std::uint64_t parts, std::uint64_t step) {
  return ((whole + parts - 1) / parts + step - 1) / step * step;
}

// The workspace of one thread.
struct LargeWork {
  float *packed, *panels, *strips;  // packed: the number of the block in panels
  explicit LargeWork(float* work) : packed(work), panels(work + 16), strips(panels + kLargePanels) {}
  std::uint64_t block() const {
    std::uint64_t number;
    std::memcpy(&number, packed, sizeof number);
    return number;
  }
  void set_block(std::uint64_t number) { std::memcpy(packed, &number, sizeof number); }
};

/// A product and its division: the sizes of a tile, and the number of tiles that share a block of columns.
struct TileGrid {
  std::uint64_t m, n, k, rows, cols, inner, row_tiles;
};
/// What a worker packs after a tile.
struct Next {
  LargeAhead left, right;
};
// What will be packed after tile i by a worker that owns the tiles `share`: the first rows of its next tile,
// and in the last two tiles of a block half of the next block. After its last tile the worker continues with
// its first one and the next inner elements. Tiles that a worker takes from others are not foreseen.
Next next_of(const TileGrid& g, Range share, std::uint64_t i, std::uint64_t p, const LargeOperand& a,
             const LargeOperand& b) {
  if (i < share.begin || i >= share.end) return {};
  Next next;
  const auto place = [&](std::uint64_t tile) { return tile < share.end ? p : p + g.inner; };
  const auto of_share = [&](std::uint64_t tile) { return tile < share.end ? tile : share.begin; };
  const std::uint64_t after = i + 1, next_block = std::min((i / g.row_tiles + 1) * g.row_tiles, share.end);
  if (const std::uint64_t at = place(after); at < g.k) {
    const std::uint64_t r = of_share(after) % g.row_tiles * g.rows;
    next.left = a.rows(r, std::min({kLargeGroup, g.rows, g.m - r}), at, std::min(g.inner, g.k - at));
  }
  if (const std::uint64_t at = place(next_block); at < g.k && next_block - i <= 2 && fetches_next_block()) {
    const std::uint64_t j = of_share(next_block) / g.row_tiles * g.cols;
    LargeAhead& all = next.right = b.rows(j, std::min(g.cols, g.n - j), at, std::min(g.inner, g.k - at));
    const std::uint64_t half = all.rows / 2;
    if (next_block - i == 1)
      all.at += half * all.ld, all.rows -= half;
    else
      all.rows = half;
  }
  return next;
}

}  // namespace

void start_tile(const Kernels& kernels, const Addends& add, std::uint64_t n, Range rows, Range cols,
                float* c) {
  if (add.any() && add.residual != c)
    for (std::uint64_t r = rows.begin; r < rows.end; ++r)
      std::memcpy(c + r * n + cols.begin, (add.residual ? add.residual + r * n : add.bias) + cols.begin,
                  cols.size() * sizeof(float));
  if (add.residual && add.bias)
    kernels.add_bias(rows.size(), cols.size(), add.bias + cols.begin, c + rows.begin * n + cols.begin, n);
}

void large_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, LargeOperand a,
                   LargeOperand b, Addends add, float* c, MoreTasks more) {
  // Some tiles for each thread, as long as they have a group of rows: the bits do not depend on the tiles.
  const std::uint64_t cols = even_part(n, parts_of(n, block_columns()), kLargeColumnStep),
                      blocks = parts_of(n, cols),
                      row_parts = std::max(parts_of(m, kLargeTileRows),
                                           std::min(parts_of(m, kLargeGroup),
                                                    parts_of(kTilesPerThread * ctx.pool.threads(), blocks))),
                      rows = even_part(m, row_parts, kLargeRowStep), row_tiles = parts_of(m, rows),
                      inner = even_part(k, parts_of(k, kLargeInner), 16);
  const auto tiles = static_cast<std::uint32_t>(row_tiles * blocks);
  const TileGrid grid{m, n, k, rows, cols, inner, row_tiles};
  for (std::uint64_t p = 0; p < k; p += inner) {
    const std::uint64_t depth = std::min(inner, k - p);
    for (std::uint32_t t = 0; t < ctx.pool.threads(); ++t)
      LargeWork(ctx.worker_workspace(t)).set_block(~0ull);
    const std::uint32_t extra = p == 0 ? more.count : 0;
    ctx.pool.run(tiles + extra, [&](std::uint32_t i, std::uint32_t worker) {
      if (i >= tiles) return more.call(more.context, i - tiles);
      const std::uint64_t block = i / row_tiles, j = block * cols, r = i % row_tiles * rows;
      const Range at_rows{r, std::min(m, r + rows)}, at_cols{j, std::min(n, j + cols)};
      LargeWork work(ctx.worker_workspace(worker));
      if (work.block() != block) {
        ctx.kernels.large_pack(at_cols.size(), depth, b.from(j, p), b.ld, b.inner_is_row, work.panels);
        work.set_block(block);
      }
      const auto [first, last] = ctx.pool.share(tiles + extra, worker);
      const Next next = next_of(grid, {first, std::min<std::uint64_t>(last, tiles)}, i, p, a, b);
      float* const to = c + r * n + j;
      const float* addend = to;  // the sums of the inner elements before
      std::uint64_t ld = n;
      if (p == 0 && add.residual && add.bias)
        start_tile(ctx.kernels, add, n, at_rows, at_cols, c);
      else if (p == 0 && add.residual)
        addend = add.residual + r * n + j;
      else if (p == 0)
        addend = add.bias ? add.bias + j : nullptr, ld = 0;
      ctx.kernels.large_product(at_rows.size(), at_cols.size(), depth, a.from(r, p), a.ld, a.inner_is_row,
                                work.panels, addend, ld, to, n, work.strips, next.left, next.right);
    });
  }
}

}  // namespace trainhost::cpu
