// Tiles of a large product. A worker owns neighbouring tiles of one block of columns, which it packs once;
// that keeps packed operands in the caches of the core that reads them. See large_product.hpp; reasons:
// plugins/cpu/README.md.
#include "plugins/cpu/engine/large_product.hpp"

#include <unistd.h>

#include <cstring>

namespace trainhost::cpu {
namespace {

constexpr std::uint64_t kLargeTileRows =
    192;  // approximately: tasks are short enough for cores of unequal speed

// Columns of a packed block: up to five eighths of the L2 cache of this CPU, 1 MiB if it is unknown.
std::uint64_t block_columns() {
  static const std::uint64_t columns = [] {
    const long l2 = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    const std::uint64_t bytes = l2 > 0 ? static_cast<std::uint64_t>(l2) : std::uint64_t{1} << 20;
    return std::clamp<std::uint64_t>(
        bytes * 5 / 8 / (kLargeInner * sizeof(float)) / kLargeColumnStep * kLargeColumnStep, 128,
        kLargeColumns);
  }();
  return columns;
}

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

}  // namespace

void large_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, LargeOperand a,
                   LargeOperand b, bool add, float* c, TileHook before, MoreTasks more) {
  const std::uint64_t cols = even_part(n, parts_of(n, block_columns()), kLargeColumnStep),
                      rows = even_part(m, parts_of(m, kLargeTileRows), kLargeRowStep),
                      row_tiles = parts_of(m, rows), inner = even_part(k, parts_of(k, kLargeInner), 16);
  const std::uint32_t tiles = static_cast<std::uint32_t>(row_tiles * parts_of(n, cols));
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
      if (p == 0 && before.call) before.call(before.context, at_rows, at_cols);
      ctx.kernels.large_product(at_rows.size(), at_cols.size(), depth, a.from(r, p), a.ld, a.inner_is_row,
                                work.panels, add || p, c + r * n + j, n, work.strips);
    });
  }
}

}  // namespace trainhost::cpu
