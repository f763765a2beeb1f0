// The packing problem by itself: items with sizes and lifetimes, to be laid on top of each other in one arena
// so that no two that live at the same time share a byte. Knows nothing of programs; place.cpp brings the two
// together.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace trainhost::placement {

struct PackItem {
  std::uint32_t first, last;  // alive in [first, last], both inclusive, counted from the section's start
  std::uint64_t size;         // a multiple of the alignment, > 0
};

/// The most bytes alive at one time: no packing is lower.
std::uint64_t pack_bound(std::span<const PackItem> items, std::uint32_t times);

/// Offsets for all items; returns the height. Deterministic. Several greedy orders are tried and the lowest
/// result is kept; a result of at most `good_enough` ends the search. `times` bounds every item's last.
std::uint64_t pack(std::span<const PackItem> items, std::uint32_t times, std::uint64_t good_enough,
                   std::vector<std::uint64_t>& offset);

}  // namespace trainhost::placement
