// Two ways to divide a product: each core packs the operands that it reads (with AMX, or if the product is
// short), or, for each block of rows, of columns and of the inner dimension, all threads pack the operands,
// then multiply the packed block tile by tile. Tiles are numbered column by column, so that the panels that a
// thread uses stay in its cache. See bf16_product.hpp; layout of packed operands: kernels/bf16.hpp; rates:
// plugins/cpu/README.md.
#include "plugins/cpu/engine/bf16_product.hpp"

#include <xmmintrin.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "plugins/cpu/common/workspace.hpp"
#include "plugins/cpu/engine/large_product.hpp"
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
  // All strips or panels of an operand. If its inner elements are rows, a few rows are packed at a time, so
  // that all of their columns are read together; not for kernels whose packed block has several panels.
  void run_all() const {
    constexpr std::uint64_t kRows = 64;
    if (!from.inner_is_row || !kernels.native) {
      for (std::uint32_t i = 0; i < tasks(); ++i) run(i);
      return;
    }
    for (std::uint64_t p = inner.begin; p < inner.end; p += kRows)
      for (std::uint64_t i = outer.begin, at = p - inner.begin; i < outer.end;
           i += kernels.block, at += kernels.step(inner.size()) / kernels.block)
        pack(std::min(kernels.block, outer.end - i), std::min(kRows, inner.end - p),
             static_cast<const std::byte*>(from.at) + (p * from.ld + i) * from.element_bytes(), from.stored,
             from.ld, true, to + at * kernels.block * kernels.element_bytes);
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
        // With one inner block the rows stay packed for all blocks of columns, and a single block of columns
        // for all rows.
        const bool one_part = size.inner >= k;
        const std::uint32_t first = j == 0 || !one_part ? rows.tasks() : 0,
                            second = i == 0 || !one_part || size.cols < n ? cols.tasks() : 0;
        ctx.pool.run(first + second, [&](std::uint32_t task, std::uint32_t) {
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

// ---- each core packs what it reads itself

// Division of a product into tasks. A task packs a block of columns of the right operand, unless its worker
// packed it for the task before. The left operand is read in place if its inner elements are contiguous; else
// kGroup rows of it are packed at a time.
struct CoreBlocks {
  static constexpr std::uint64_t kGroup = 128, kMaxCols = 512;
  static constexpr std::uint64_t kLeft = 64 * 1024;  // floats of a packed group of rows
  std::uint64_t rows, cols, inner;                   // of a task; inner elements are packed in `parts`
  std::uint64_t parts, row_tasks, col_tasks, group;  // group: rows that are multiplied at a time
  std::uint64_t floats;  // of each worker in the shared workspace: number of the block, block, sums
  bool fits;

  std::uint64_t block_floats() const { return cols * inner * element_bytes / sizeof(float); }
  // Sums of a result in bf16 are kept over all parts of the inner elements.
  std::uint64_t sums() const { return parts > 1 ? rows * cols : 0; }
  CoreBlocks(const Bf16Kernels& kernels, std::uint64_t m, std::uint64_t n, std::uint64_t k,
             std::uint64_t threads)
      : element_bytes(kernels.element_bytes), unit(kernels.native ? kBf16InnerUnit : kBf16Unit) {
    // Operands that are packed for every block of columns need wide blocks, so fewer inner elements.
    const std::uint64_t max_inner = kernels.multiply_rows ? 2304
                                    : kernels.native      ? 768
                                                          : 384,
                        block = std::min<std::uint64_t>(1u << 20, l2_bytes() * 5 / 8) / element_bytes;
    parts = std::max<std::uint64_t>(ceil_div(k, max_inner), 1);
    inner = up_to(ceil_div(k, parts), kBf16InnerUnit);
    floats = bf16_blocks(m, n, k).floats() / threads / 16 * 16;
    const bool one = parts == 1;
    group = std::clamp<std::uint64_t>(kLeft * sizeof(float) / element_bytes / inner / unit * unit, unit,
                                      kGroup / unit * unit);
    const std::uint64_t most = one || !kernels.multiply_rows ? block / inner / unit * unit : 192;
    cols = even_part(n, std::clamp(most, unit, kMaxCols / unit * unit));
    rows = even_part(m, one ? 256 : 1024);
    const std::uint64_t least = std::max<std::uint64_t>(64, unit);
    for (count(m, n); row_tasks * col_tasks < (one ? 8 : 4) && (rows > least || cols > least); count(m, n)) {
      if (rows > least)
        rows = up_to(rows / 2, unit);
      else
        cols = up_to(cols / 2, unit);
    }
    for (; !(fits = 16 + block_floats() + sums() <= floats) && cols > 128; count(m, n))
      cols = up_to(cols / 2, unit);
  }

 private:
  std::uint64_t element_bytes, unit;  // unit: of rows and columns
  // The largest of equal parts of up to `most`.
  std::uint64_t even_part(std::uint64_t whole, std::uint64_t most) const {
    return up_to(ceil_div(whole, std::max<std::uint64_t>(ceil_div(whole, most), 1)), unit);
  }
  void count(std::uint64_t m, std::uint64_t n) {
    row_tasks = ceil_div(m, rows), col_tasks = ceil_div(n, cols);
  }
};
// The workspace of one thread: spare of the kernels, a packed group of rows, its sums.
constexpr std::uint64_t kLeftFloats = CoreBlocks::kLeft;
static_assert(kBf16Spare + kLeftFloats + CoreBlocks::kGroup * CoreBlocks::kMaxCols <= kThreadProductWork);

// Where results of a product go: sums in f32, or rounded ones.
struct Destination {
  float* c;
  bool add;
  TileHook before;
  const Bf16Result* rounded;  // null: c
};

constexpr std::uint64_t kStreamed = 1u << 19;  // floats of a result
// cols is a multiple of 16, rows of `to` are whole cache lines.
void stream_rows(std::uint64_t rows, std::uint64_t cols, const float* from, std::uint64_t ld, float* to,
                 std::uint64_t ld_to) {
  for (std::uint64_t r = 0; r < rows; ++r, from += ld, to += ld_to)
    for (std::uint64_t j = 0; j < cols; j += 4) _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
  _mm_sfence();
}

struct CoreTask {
  OpContext& ctx;
  const Bf16Operand &a, &b;
  const CoreBlocks& size;
  const Destination& to;
  std::uint64_t m, n, k;
  Range rows, cols;
  std::uint64_t column_block;
  std::uint32_t worker;

  void run() const {
    float* const share = ctx.shared_workspace() + worker * size.floats;
    float* const block = share + 16;
    for (std::uint64_t part = 0; part < size.parts; ++part) {
      const Range inner = {part * size.inner, std::min(k, (part + 1) * size.inner)};
      const std::uint64_t number = column_block * size.parts + part;
      if (number_of(share) != number) {
        const Packing columns = {
            *ctx.bf16, ctx.bf16->pack_right, b, cols, inner, reinterpret_cast<std::byte*>(block)};
        columns.run_all();
        std::memcpy(share, &number, sizeof number);
      }
      for (std::uint64_t g = rows.begin; g < rows.end; g += size.group)
        group({g, std::min(rows.end, g + size.group)}, inner, block);
    }
  }
  static std::uint64_t number_of(const float* share) {
    std::uint64_t number;
    std::memcpy(&number, share, sizeof number);
    return number;
  }

 private:
  void group(Range at, Range inner, const float* block) const {
    const bool first = inner.begin == 0, last = inner.end == k;
    if (!to.rounded) {
      if (streams()) {
        float* const sums = ctx.worker_workspace(worker) + kBf16Spare + kLeftFloats;
        multiply(at, inner, block, false, sums, size.cols);
        return stream_rows(at.size(), cols.size(), sums, size.cols, to.c + at.begin * n + cols.begin, n);
      }
      if (first && to.before.call) to.before.call(to.before.context, at, cols);
      return multiply(at, inner, block, to.add || !first, to.c + at.begin * n + cols.begin, n);
    }
    float* const sums = size.parts > 1 ? ctx.shared_workspace() + worker * size.floats + 16 +
                                             size.block_floats() + (at.begin - rows.begin) * size.cols
                                       : ctx.worker_workspace(worker) + kBf16Spare + kLeftFloats;
    multiply(at, inner, block, !first, sums, size.cols);
    if (!last) return;
    const Bf16Result& r = *to.rounded;
    const std::uint64_t offset = at.begin * r.ld + cols.begin;
    ctx.kernels.store_sums(at.size(), cols.size(), sums, size.cols, r.scale,
                           r.bias ? r.bias + cols.begin : nullptr, r.residual ? r.residual + offset : nullptr,
                           r.c + offset, r.ld);
  }
  // Results that are read after they have left the caches, such as gradients of large weights, are written
  // past them: memory is not read first, and operands stay in the caches.
  bool streams() const {
    return m * n >= kStreamed && !to.add && size.parts == 1 && !to.before.call && n % 16 == 0 &&
           reinterpret_cast<std::uintptr_t>(to.c) % 64 == 0;
  }
  void multiply(Range at, Range inner, const float* block, bool add, float* c, std::uint64_t ldc) const {
    const Bf16Kernels& kernels = *ctx.bf16;
    float* const spare = ctx.worker_workspace(worker);
    const bool in_place =
        kernels.multiply_rows && a.stored && !a.inner_is_row && inner.size() % kBf16InnerUnit == 0;
    const std::uint64_t direct = in_place ? at.size() / kernels.block * kernels.block : 0;
    if (direct)
      kernels.multiply_rows(direct, cols.size(), inner.size(),
                            static_cast<const Bf16*>(a.at) + at.begin * a.ld + inner.begin, a.ld, block, add,
                            c, ldc, spare);
    if (direct == at.size()) return;
    auto* const packed = reinterpret_cast<std::byte*>(spare + kBf16Spare);
    const Packing strips = {kernels, kernels.pack_left, a, {at.begin + direct, at.end}, inner, packed};
    strips.run_all();
    kernels.multiply(at.size() - direct, cols.size(), inner.size(), packed, block, add, c + direct * ldc, ldc,
                     spare);
  }
};

// Without AMX a product is packed per core if it is short, because then the barriers after packing and lines
// that move between the cores take much of its time, and if it has enough tasks.
bool packs_by_core(const Bf16Kernels& kernels, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  constexpr std::uint64_t kLeast = 1u << 17, kMost = 1u << 30;  // sums, and products
  return kernels.multiply_rows || (m * n >= kLeast && m * n <= kMost / k);
}

// False if the workspace is too small, because there are many threads.
bool product_by_core(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, const Bf16Operand& a,
                     const Bf16Operand& b, const Destination& to) {
  if (k == 0 || !packs_by_core(*ctx.bf16, m, n, k)) return false;
  const std::uint32_t threads = ctx.pool.threads();
  const CoreBlocks size(*ctx.bf16, m, n, k, threads);
  if (!size.fits) return false;
  const std::uint64_t none = ~std::uint64_t{0};
  for (std::uint32_t t = 0; t < threads; ++t)
    std::memcpy(ctx.shared_workspace() + t * size.floats, &none, sizeof none);
  ctx.pool.run(static_cast<std::uint32_t>(size.row_tasks * size.col_tasks), [&](std::uint32_t i,
                                                                                std::uint32_t worker) {
    const std::uint64_t block = i / size.row_tasks, r = i % size.row_tasks * size.rows, j = block * size.cols;
    CoreTask{
        ctx,   a,     b, size, to, m, n, k, {r, std::min(m, r + size.rows)}, {j, std::min(n, j + size.cols)},
        block, worker}
        .run();
  });
  return true;
}

}  // namespace

void bf16_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, Bf16Operand a,
                  Bf16Operand b, bool add, float* c, TileHook before) {
  if (product_by_core(ctx, m, n, k, a, b, {c, add, before, nullptr})) return;
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
  if (product_by_core(ctx, m, n, k, a, b, {nullptr, false, {}, &to})) return;
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
