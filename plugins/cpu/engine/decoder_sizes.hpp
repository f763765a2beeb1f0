// Constants of the decoder that its layout and its arithmetic share. Chosen by measurement where a reason is
// given.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/model/model_spec.hpp"
#include "plugins/cpu/kernels/kernel_table.hpp"

namespace trainhost::cpu {

/// Up to this number of rows a product reads the weight once with dot products; above it, blocks of the
/// weight are packed for products with tiles, which costs about as much as a few rows.
inline constexpr std::uint64_t kDotRows = 8;
/// Queries of one head that a task of attention processes together.
inline constexpr std::uint32_t kDecodeQueries = 16;
/// Inner elements of a packed block, a multiple of kProductInner; the widest panel, of three vectors of 16. A
/// block and its copy in f32 stay in the L2 cache.
inline constexpr std::uint64_t kPanelInner = 512, kPanelWidth = 48;
inline constexpr std::uint64_t kPanelFloats = 2 * kPanelInner * kPanelWidth;

/// Floats of one thread: scores of a block of queries, or of the heads that share a key/value head; two
/// statistics per query.
inline std::uint64_t score_floats(const ModelSpec& m, std::uint64_t context) {
  const std::uint64_t queries = std::max<std::uint64_t>(kDecodeQueries, m.heads / m.kv_heads);
  return queries * (context + 3);
}

}  // namespace trainhost::cpu
