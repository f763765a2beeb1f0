// Packing from two ends: some items are stacked from the bottom, the others are packed downwards from the
// top; both meet at the time of the peak. Called by pack.cpp.
//   Sections of very many items: the stack has the long-lived items. Items that are far apart in time are
//   never compared, so the cost is linear in their number. Gradients that grow while activations shrink: the
//   stack has the gradients.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/placement/pack.hpp"
#include "core/placement/pack_order.hpp"

namespace trainhost::placement {

/// Returned instead of a height: no packing within the limit was found.
inline constexpr std::uint64_t kTooHigh = UINT64_MAX;

/// The order in which the short-lived items are placed, each in the gap nearest to the top.
enum class TopOrder : std::uint8_t { kLargest, kLatest };

/// Computes offsets for all items and returns the height; kTooHigh, with unusable offsets, as soon as it
/// exceeds `limit`. Items with a lifetime of more than `long_lived` time steps are stacked from the bottom.
std::uint64_t pack_from_two_ends(std::span<const PackItem> items, std::uint32_t times,
                                 std::uint32_t long_lived, TopOrder top_order, std::uint64_t limit,
                                 std::vector<std::uint64_t>& offset);

/// The same with the items that grow (PackItem::grows) at the bottom, in order of time. Their stack is the
/// same whatever the order of the others, so it is built once for all attempts.
class GrowingStack {
 public:
  /// `items` must outlive the stack.
  GrowingStack(std::span<const PackItem> items, std::uint32_t times);

  /// Places the others in the order of `others`, which may contain all items: each in the gap nearest to the
  /// top if `in_gaps`, else below everything that overlaps it in time. Returns the height; kTooHigh, with
  /// unusable offsets, as soon as it exceeds `limit`. `tallest` becomes the item of the others that needs the
  /// height, or 0.
  std::uint64_t pack_others(const Order& others, bool in_gaps, std::uint64_t limit,
                            std::vector<std::uint64_t>& offset, std::uint32_t& tallest) const;

 private:
  std::span<const PackItem> items_;
  std::uint32_t times_;
  std::vector<std::uint64_t>
      at_;  // of a growing item: its offset; of another: the stack's height in its lifetime
  std::uint64_t height_ = 0;
};

}  // namespace trainhost::placement
