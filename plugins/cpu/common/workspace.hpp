// Layout of the planned workspace, in floats: one part shared by all threads (a packed weight, the slots of a
// weight's gradient, or packed bf16 operands), then one part per thread for copies of operands. The front end
// computes the size for the traits and the engine the addresses with the same functions.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/model/adapters.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/cpu/kernels/bf16.hpp"
#include "plugins/cpu/kernels/kernel_table.hpp"

namespace trainhost::cpu {

// ---- bf16 products: a block of each operand is packed into the shared part, then multiplied tile by tile

/// Blocks of a product, chosen by shape only. Elements of packed operands take up to 4 bytes.
struct Bf16Blocks {
  std::uint64_t rows, cols, inner;  // of one block; rows and columns are multiples of kBf16Unit

  std::uint64_t left_floats() const { return rows * inner; }
  std::uint64_t right_floats() const { return cols * inner; }
  /// Sums of a block of a result in bf16, until the last inner block has been added.
  std::uint64_t sums() const { return rows * cols; }
  std::uint64_t floats() const { return left_floats() + right_floats() + sums(); }
};

inline constexpr std::uint64_t kBf16Inner = 1024, kBf16Side = 768;  // maximum elements
/// v rounded up to a multiple of `unit`, at least `unit`.
inline std::uint64_t up_to(std::uint64_t v, std::uint64_t unit) {
  return std::max<std::uint64_t>((v + unit - 1) / unit, 1) * unit;
}

/// Blocks for C[m,n] = A[m,k] B[k,n].
inline Bf16Blocks bf16_blocks(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t parts = std::max<std::uint64_t>((k + kBf16Inner - 1) / kBf16Inner, 1);
  return {std::min(up_to(m, kBf16Unit), kBf16Side), std::min(up_to(n, kBf16Unit), kBf16Side),
          up_to((k + parts - 1) / parts, kBf16InnerUnit)};
}

/// Floats that are sufficient for the blocks of any product up to these sizes; used for planning. The blocks
/// of a smaller product can have more inner elements (fewer parts); this bound does not grow.
inline std::uint64_t max_bf16_block_floats(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t rows = std::min(up_to(m, kBf16Unit), kBf16Side),
                      cols = std::min(up_to(n, kBf16Unit), kBf16Side),
                      inner = std::min(up_to(k, kBf16InnerUnit), kBf16Inner);
  return (rows + cols) * inner + rows * cols;
}

// ---- f32 products and attention

/// Weights up to this many elements (512 KiB packed) are multiplied by the small products, larger ones by the
/// large products or by OpenBLAS.
inline constexpr std::uint64_t kSmallWeight = 1u << 17;
inline bool small_weight(std::uint64_t n, std::uint64_t k) { return k == 0 || n <= kSmallWeight / k; }

/// Maximum tile of a small weight's gradient; the longer side is the limit of the copies in Kernels::product.
/// If this gives few tiles, the tokens are also divided into up to four slots.
inline constexpr std::uint64_t kGradientRows = 144, kGradientCols = kProductSide;
inline std::uint64_t gradient_slots(std::uint64_t n, std::uint64_t k, std::uint64_t tokens) {
  if (!small_weight(n, k)) return 1;
  const std::uint64_t tiles =
      ((n + kGradientRows - 1) / kGradientRows) * ((k + kGradientCols - 1) / kGradientCols);
  return std::clamp<std::uint64_t>(std::min(16 / std::max<std::uint64_t>(tiles, 1), tokens / 256), 1, 4);
}

/// The widest panel of any instruction set.
inline constexpr std::uint64_t kWidestPanel = 48;

/// Packing pads one side of a weight to whole panels; this is the maximum over both sides.
inline std::uint64_t packed_floats(std::uint64_t n, std::uint64_t k) {
  return std::max((n + kWidestPanel) * k, (k + kWidestPanel) * n);
}
/// A weight [n, k] of the model and the number of tokens that it is multiplied by at once.
struct Linear {
  std::uint64_t n, k, tokens;
};
/// All weights that are multiplied: qkv, attention output, gate and up, down, head (a chunk of tokens at a
/// time), and the stacked A of the adapters of each product.
inline std::vector<Linear> linears(const ModelSpec& m, const RunSpec& r, const TrainerTraits& p) {
  const std::uint64_t h = m.hidden, i = m.intermediate, t = r.tokens_per_micro_batch();
  const std::uint64_t chunk = p.head_chunk_tokens ? std::min<std::uint64_t>(p.head_chunk_tokens, t) : t;
  std::vector<Linear> all{
      {m.qkv_width(), h, t}, {h, m.q_width(), t}, {2 * i, h, t}, {h, i, t}, {m.vocab, h, chunk}};
  for (const AdapterBlocks& b : different_adapter_blocks(m, r)) all.push_back({b.inner(), b.inputs, t});
  if (const AdapterBlocks b = adapter_blocks(m, r, AdapterGroup::kHead, -1); b.count)
    all.push_back({b.inner(), b.inputs, t});
  return all;
}
/// Floats that the products with B of the adapters use (engine/ops_lora.cpp). In f32 one packed block of B,
/// or a copy of u; where bf16 is stored, the blocks of the products and the sums of a gradient.
inline std::uint64_t lora_floats(const ModelSpec& m, const RunSpec& r, bool f32_storage) {
  const std::uint64_t t = r.tokens_per_micro_batch();
  std::uint64_t most = 0;
  std::vector<AdapterBlocks> products = different_adapter_blocks(m, r);
  for (const AdapterGroup g : {AdapterGroup::kEmbed, AdapterGroup::kHead})
    products.push_back(adapter_blocks(m, r, g, -1));
  for (const AdapterBlocks& blocks : products) {
    const std::uint64_t rank = blocks.rank;
    if (f32_storage) most = std::max(most, blocks.inner() * t);
    for (const AdapterBlock& b : blocks.all())
      most = f32_storage ? std::max(most, packed_floats(b.outputs, rank))
                         : std::max({most, max_bf16_block_floats(t, b.outputs, rank),
                                     max_bf16_block_floats(t, rank, b.outputs),
                                     max_bf16_block_floats(b.outputs, rank, t) + b.outputs * rank});
  }
  return most;
}
/// Floats of the shared part: the maximum over all weights, because it is used by one product at a time.
/// Rounded up to 16 floats, one cache line.
inline std::uint64_t shared_floats(const ModelSpec& m, const RunSpec& r, const TrainerTraits& p) {
  std::uint64_t most = lora_floats(m, r, p.f32_storage);
  for (const Linear& l : linears(m, r, p)) {
    if (r.compute == DType::kBF16)  // blocks of both operands of y, dx and the weight's gradient
      most = std::max({most, max_bf16_block_floats(l.tokens, l.n, l.k),
                       max_bf16_block_floats(l.tokens, l.k, l.n), max_bf16_block_floats(l.n, l.k, l.tokens)});
    else if (small_weight(l.n, l.k))
      most = std::max({most, packed_floats(l.n, l.k),
                       (gradient_slots(l.n, l.k, r.tokens_per_micro_batch()) - 1) * l.n * l.k});
  }
  return (most + 15) / 16 * 16;
}
/// Queries of one head that one attention task processes; a multiple of the query tile.
inline constexpr std::uint32_t kQueryBlock = 256;
inline std::uint32_t query_block(const TrainerTraits& p) {
  return std::max(kQueryBlock / p.attention_tile_q, 1u) * std::min(p.attention_tile_q, kQueryBlock);
}
/// A tile of keys or values, either side padded to whole panels.
inline std::uint64_t packed_tile_floats(const TrainerTraits& p, std::uint64_t head_dim) {
  return ((p.attention_tile_k + kWidestPanel) * (head_dim + kWidestPanel) + 15) / 16 * 16;
}
/// Large products: number of the packed block and of claimed tasks (16 floats, one cache line), that block of
/// the right operand, and a group of rows of the left operand. engine/large_product.cpp divides it.
inline constexpr std::uint64_t kLargeWork = 16 + kLargePanels + kLargeStrips;
/// What a product needs of one thread's part: the maximum, because one product runs at a time.
inline constexpr std::uint64_t kThreadProductWork = std::max(kProductWork, kLargeWork);
static_assert(kThreadProductWork % 16 == 0, "the parts of two threads share no cache line");
/// Floats between rows of scores; not a multiple of 512 bytes, to avoid equal cache sets, if the planned
/// scratch has memory for that: it has D + 2 floats per query besides two tiles of scores.
inline std::uint32_t scores_ld(const TrainerTraits& p, std::uint64_t head_dim) {
  return p.attention_tile_k + (p.attention_tile_k % 128 == 0 && head_dim >= 30 ? 16 : 0);
}
/// Whether Kernels::product() copies scores to the thread's product work (kProductWork).
inline bool attention_product_needs_work(std::uint64_t ld_scores) { return ld_scores % 128 == 0; }
/// Floats between compact rows of attention: an odd number of cache lines.
inline std::uint64_t compact_ld(std::uint64_t head_dim) { return ((head_dim + 15) / 16 | 1) * 16; }
/// Queries whose gradients are computed at a time, in f32: of a head and its group about 64K elements, so
/// that their compact rows stay in the L2 cache; at least a tile of queries.
inline std::uint32_t segment_queries(const TrainerTraits& p, std::uint64_t group, std::uint64_t seq,
                                     std::uint64_t head_dim) {
  const std::uint64_t tile = std::max<std::uint64_t>(p.attention_tile_q, 1),
                      fit = 65536 / std::max<std::uint64_t>(head_dim * group, 1) / tile * tile;
  return static_cast<std::uint32_t>(std::min(seq, std::max(fit, tile)));
}
/// Compact rows in f32 that attention needs at least. Forward: queries and outputs of a block. Backward: the
/// gradients of a tile of keys and values; of a segment queries, gradients of outputs and of queries. Rows
/// that are stored in bf16 are widened: a tile of keys or values too, the gradients of all queries of a group
/// of heads, and a tile of queries and of gradients of outputs. One generated token: query, output, and all
/// keys or values.
inline std::uint64_t compact_rows(const TrainerTraits& p, std::uint64_t group, std::uint64_t seq,
                                  std::uint64_t head_dim) {
  if (p.f32_storage)
    return std::max<std::uint64_t>(
        2 * kQueryBlock, 2 * p.attention_tile_k + 3 * group * segment_queries(p, group, seq, head_dim));
  return std::max<std::uint64_t>({2 * kQueryBlock + p.attention_tile_k,
                                  3 * p.attention_tile_k + 2 * p.attention_tile_q + group * seq, 2 + seq});
}
/// Work of one product, three packed tiles, two floats per query of a block, one per query of a group of
/// heads, and compact rows, which in f32 use the work of other products.
inline std::uint64_t worker_floats(const ModelSpec& m, const RunSpec& r, const TrainerTraits& p) {
  const std::uint64_t group = m.kv_heads ? m.heads / m.kv_heads : 0,
                      compact = compact_rows(p, group, r.seq_len, m.head_dim) * compact_ld(m.head_dim),
                      work = attention_product_needs_work(scores_ld(p, m.head_dim)) ? kProductWork : 0;
  return (p.f32_storage ? std::max(kThreadProductWork, work + compact) : kThreadProductWork + compact) +
         3 * packed_tile_floats(p, m.head_dim) + 2 * kQueryBlock + (group * r.seq_len + 15) / 16 * 16;
}
inline std::uint64_t workspace_floats(const ModelSpec& m, const RunSpec& r, const TrainerTraits& p) {
  return shared_floats(m, r, p) + p.threads * worker_floats(m, r, p);
}

}  // namespace trainhost::cpu
