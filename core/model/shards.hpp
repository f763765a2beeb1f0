// How the elements of a tensor are divided among the ranks that share it under ZeRO.
#pragma once
#include <algorithm>
#include <cstdint>

namespace trainhost {

/// Elements [first, first + count) of a tensor; count may be 0.
struct Shard {
  std::uint64_t first = 0, count = 0;
};

/// Elements per rank: equal pieces, in multiples of 16 (64 bytes of f32), so that every piece is aligned. The
/// pieces of the last ranks may be shorter or empty.
inline std::uint64_t shard_elements(std::uint64_t elements, std::uint32_t ranks) {
  const std::uint64_t each = (elements + ranks - 1) / ranks;
  return (each + 15) / 16 * 16;
}

inline Shard shard_of(std::uint64_t elements, std::uint32_t ranks, std::uint32_t rank) {
  const std::uint64_t each = shard_elements(elements, ranks);
  const std::uint64_t first = std::min(elements, each * rank);
  return {first, std::min(each, elements - first)};
}

}  // namespace trainhost
