// Packing from two ends, for sections of very many items: long-lived items are stacked from the bottom, items
// that live for a few layers are packed downwards from the top; both meet at the time of the peak. Never
// compares items that are far apart in time, so the cost is linear in their number. Called by pack.cpp.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/placement/pack.hpp"

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

}  // namespace trainhost::placement
