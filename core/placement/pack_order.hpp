// Orders of items by a time: bucket sort with one bucket per time step, comparisons only inside a bucket,
// because a general sort would be a large part of packing many items. Used by pack.cpp and pack_two_ends.cpp.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/placement/pack.hpp"

namespace trainhost::placement {

using Order = std::vector<std::uint32_t>;

/// The items with indices `which`, sorted by `time(item)` in [0, times); equal times by `before(a, b)` on
/// indices, then in the order of `which`.
template <class Time, class Before>
Order by_time(std::span<const PackItem> items, const Order& which, std::uint32_t times, Time time,
              Before before) {
  std::vector<std::uint32_t> begin(std::size_t{times} + 1, 0);
  for (std::uint32_t i : which) ++begin[time(items[i]) + 1];
  for (std::size_t t = 1; t < begin.size(); ++t) begin[t] += begin[t - 1];
  Order order(which.size());
  std::vector<std::uint32_t> next(begin);
  for (std::uint32_t i : which) order[next[time(items[i])]++] = i;
  for (std::size_t t = 0; t + 1 < begin.size(); ++t) {
    const auto bucket = order.begin() + begin[t], end = order.begin() + begin[t + 1];
    // Items of equal layers are often in order. A stable_sort() allocates.
    if (end - bucket > 1 && !std::is_sorted(bucket, end, before)) std::stable_sort(bucket, end, before);
  }
  return order;
}

}  // namespace trainhost::placement
