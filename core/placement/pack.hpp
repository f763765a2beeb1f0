// The packing problem: items with sizes and lifetimes get offsets so that no two items that are live at the
// same time share a byte, and the highest end is as low as possible (dynamic storage allocation). Independent
// of programs; place.cpp turns buffers into items.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace trainhost::placement {

struct PackItem {
  std::uint32_t first, last;  // live in [first, last], both inclusive, counted from the start of the section
  std::uint64_t size;         // a multiple of the alignment, > 0
  // Stacked from the bottom in order of first use, as gradients of one micro-batch are.
  bool grows = false;
};

/// Lower bound of every packing: the maximum over time of the bytes that are live.
std::uint64_t pack_bound(std::span<const PackItem> items, std::uint32_t times);

/// Computes offsets for all items and returns the height, the highest end of an item. Deterministic: tries
/// several greedy orders and keeps the lowest result; stops at a height of at most `good_enough`.
/// `times`: number of time steps; every item has last < times.
std::uint64_t pack(std::span<const PackItem> items, std::uint32_t times, std::uint64_t good_enough,
                   std::vector<std::uint64_t>& offset);

}  // namespace trainhost::placement
