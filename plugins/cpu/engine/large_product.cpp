// Tiles of a large product. A worker owns neighbouring tiles of one block of columns, which it packs once;
// that keeps packed operands in the caches of the core that reads them. The parts of the inner elements of a
// tile are added one after the other, without a barrier between those of different tiles. See
// large_product.hpp; reasons: plugins/cpu/README.md.
#include "plugins/cpu/engine/large_product.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace trainhost::cpu {
namespace {

// Rows of a tile, approximately, and tiles of a thread at least: tasks are short enough for cores of unequal
// speed.
constexpr std::uint64_t kLargeTileRows = 192, kTilesPerThread = 3;

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

// The workspace of one thread. Its first cache line: the block that is in panels, and how many tasks of the
// thread's own sequence have been claimed.
struct LargeWork {
  struct State {
    std::uint64_t block;
    std::uint32_t claimed;
  };
  State& state;
  float *panels, *strips;
  explicit LargeWork(float* work)
      : state(*reinterpret_cast<State*>(work)), panels(work + 16), strips(panels + kLargePanels) {}
};

/// A product and its division: the sizes of a tile, the number of tiles that share a block of columns, and of
/// parts of the inner elements.
struct TileGrid {
  std::uint64_t m, n, k, rows, cols, inner, row_tiles, tiles, parts;
  std::uint64_t block_of(std::uint64_t tile) const { return tile / row_tiles; }
};
/// A tile of C and a part of the inner elements.
struct TileTask {
  std::uint64_t tile, part;
};
/// The tasks of one worker: its tiles with the parts [parts.begin, parts.end). A block of columns after the
/// other, so that a packed block serves neighbouring tasks and C is still in the caches for the next part.
struct Sequence {
  const TileGrid& grid;
  Range tiles, parts;
  std::uint64_t size() const { return tiles.size() * parts.size(); }
  TileTask at(std::uint64_t i) const {
    for (std::uint64_t first = tiles.begin;;) {
      const std::uint64_t end = std::min((grid.block_of(first) + 1) * grid.row_tiles, tiles.end),
                          count = end - first;
      if (i < count * parts.size()) return {first + i % count, parts.begin + i / count};
      i -= count * parts.size(), first = end;
    }
  }
};

/// What a worker packs after a task: the first rows of its next task, and in the last two tasks with a packed
/// block half of the next block. Tasks that a worker takes from others are not foreseen.
struct Next {
  LargeAhead left, right;
};
Next next_of(const Sequence& of, std::uint64_t i, const LargeOperand& a, const LargeOperand& b) {
  const TileGrid& g = of.grid;
  const TileTask task = of.at(i);
  const auto depth = [&](const TileTask& t) { return std::min(g.inner, g.k - t.part * g.inner); };
  Next next;
  for (std::uint64_t distance = 1; distance <= 2 && i + distance < of.size(); ++distance) {
    const TileTask later = of.at(i + distance);
    if (distance == 1) {
      const std::uint64_t r = later.tile % g.row_tiles * g.rows;
      next.left = a.rows(r, std::min({kLargeGroup, g.rows, g.m - r}), later.part * g.inner, depth(later));
    }
    const std::uint64_t block = g.block_of(later.tile);
    if (!fetches_next_block() || (block == g.block_of(task.tile) && later.part == task.part)) continue;
    LargeAhead& all = next.right =
        b.rows(block * g.cols, std::min(g.cols, g.n - block * g.cols), later.part * g.inner, depth(later));
    const std::uint64_t half = all.rows / 2;
    if (distance == 1)
      all.at += half * all.ld, all.rows -= half;
    else
      all.rows = half;
    break;
  }
  return next;
}

/// Waits for another worker, which computes a tile with the inner elements before.
void wait_for_part(std::atomic_ref<std::uint16_t> finished, std::uint64_t part) {
  constexpr int kSpins = 1000;
  for (int spin = 0; finished.load(std::memory_order_acquire) != part; ++spin)
    if (spin < kSpins)
      __builtin_ia32_pause();
    else
      ::sched_yield();
}

struct LargeJob {
  OpContext& ctx;
  const TileGrid& grid;
  const LargeOperand &a, &b;
  const Addends& add;
  float* c;

  /// The task i of a sequence. Of a tile the parts are added in order.
  void run_task(const Sequence& of, std::uint64_t i, std::uint32_t worker, bool own) const {
    const auto [tile, inner_part] = of.at(i);
    const std::uint64_t block = grid.block_of(tile), j = block * grid.cols,
                        r = tile % grid.row_tiles * grid.rows, p = inner_part * grid.inner,
                        depth = std::min(grid.inner, grid.k - p), n = grid.n;
    const Range rows{r, std::min(grid.m, r + grid.rows)}, cols{j, std::min(n, j + grid.cols)};
    LargeWork work(ctx.worker_workspace(worker));
    if (const std::uint64_t number = block * grid.parts + inner_part; work.state.block != number) {
      ctx.kernels.large_pack(cols.size(), depth, b.from(j, p), b.ld, b.inner_is_row, work.panels);
      work.state.block = number;
    }
    const Next next = own ? next_of(of, i, a, b) : Next{};
    const bool shared = of.parts.size() > 1;  // the part before is of the same job
    if (shared) wait_for_part(std::atomic_ref(ctx.finished_parts[tile]), inner_part);
    float* const to = c + r * n + j;
    const float* addend = to;  // the sums of the inner elements before
    std::uint64_t ld = n;
    if (inner_part == 0 && add.residual && add.bias)
      start_tile(ctx.kernels, add, n, rows, cols, c);
    else if (inner_part == 0 && add.residual)
      addend = add.residual + r * n + j;
    else if (inner_part == 0)
      addend = add.bias ? add.bias + j : nullptr, ld = 0;
    ctx.kernels.large_product(rows.size(), cols.size(), depth, a.from(r, p), a.ld, a.inner_is_row,
                              work.panels, addend, ld, to, n, work.strips, next.left, next.right);
    if (shared)
      std::atomic_ref(ctx.finished_parts[tile])
          .store(static_cast<std::uint16_t>(inner_part + 1), std::memory_order_release);
  }

  /// All tasks of a worker's own sequence, then those that others have not claimed.
  void run_worker(std::uint32_t worker, Range parts) const {
    const std::uint32_t threads = ctx.pool.threads();
    for (std::uint32_t t = 0; t < threads; ++t) {
      const std::uint32_t owner = (worker + t) % threads;
      const Sequence tasks{grid, part(grid.tiles, owner, threads), parts};
      const std::atomic_ref claimed(LargeWork(ctx.worker_workspace(owner)).state.claimed);
      for (std::uint32_t i; (i = claimed.fetch_add(1, std::memory_order_relaxed)) < tasks.size();)
        run_task(tasks, i, worker, owner == worker);
    }
  }
};

}  // namespace

std::uint64_t l2_bytes() {
  static const std::uint64_t bytes = [] {
    const long size = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? static_cast<std::uint64_t>(size) : std::uint64_t{1} << 20;
  }();
  return bytes;
}

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
  const TileGrid grid{m, n, k, rows, cols, inner, row_tiles, row_tiles * blocks, parts_of(k, inner)};
  const LargeJob job{ctx, grid, a, b, add, c};
  // All parts of the inner elements in one job, or, with more tiles than are counted, in one job each.
  const bool together = grid.tiles <= ctx.finished_parts.size() && grid.parts <= UINT16_MAX;
  const std::uint64_t of_job = together ? grid.parts : 1;
  if (together) std::fill_n(ctx.finished_parts.begin(), grid.tiles, std::uint16_t{0});
  for (std::uint64_t first = 0; first < grid.parts; first += of_job) {
    const std::uint32_t threads = ctx.pool.threads(), extra = first == 0 ? more.count : 0;
    for (std::uint32_t t = 0; t < threads; ++t) LargeWork(ctx.worker_workspace(t)).state = {~0ull, 0};
    ctx.pool.run(extra + threads, [&](std::uint32_t i, std::uint32_t worker) {
      if (i < extra) return more.call(more.context, i);
      job.run_worker(worker, {first, first + of_job});
    });
  }
}

}  // namespace trainhost::cpu
