// Packing from two ends, for sections of very many items: what lives long is stacked from the bottom, what
// lives for a few layers is packed from the top, and where a section is at its fullest both meet. Never
// compares items that are far apart in time, so its cost grows with their number alone. Who tries it, and
// after what: pack.cpp.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/placement/pack.hpp"

namespace trainhost::placement {

/// No packing below the limit was found.
inline constexpr std::uint64_t kTooHigh = UINT64_MAX;

/// In which order items that live for a short time look for the hole that is nearest to the top.
enum class Nearest : std::uint8_t { kLargest, kLatest };

/// Offsets for all items and the height that they take; kTooHigh, with offsets that mean nothing, as soon as
/// that is more than `limit`. `lasting`: items that live longer than so many times are stacked from the
/// bottom.
std::uint64_t pack_from_two_ends(std::span<const PackItem> items, std::uint32_t times, std::uint32_t lasting,
                                 Nearest nearest, std::uint64_t limit, std::vector<std::uint64_t>& offset);

}  // namespace trainhost::placement
