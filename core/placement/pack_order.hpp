// Orders of items by a time: into one bucket a time, and only what shares a bucket is compared. Sorting would
// be a good part of packing many items. Knows nothing of where items lie (pack.cpp, pack_two_ends.cpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/placement/pack.hpp"

namespace trainhost::placement {

using Order = std::vector<std::uint32_t>;

/// `which` items by `time(item)`, 0 to `times` - 1, the least first; of one time by `before(a, b)` over
/// indices, and where that says nothing in the order of `which`.
template <class Time, class Before>
Order by_time(std::span<const PackItem> items, const Order& which, std::uint32_t times, Time time,
              Before before) {
  std::vector<std::uint32_t> begin(std::size_t{times} + 1, 0);
  for (std::uint32_t i : which) ++begin[time(items[i]) + 1];
  for (std::size_t t = 1; t < begin.size(); ++t) begin[t] += begin[t - 1];
  Order order(which.size());
  std::vector<std::uint32_t> next(begin);
  for (std::uint32_t i : which) order[next[time(items[i])]++] = i;
  for (std::size_t t = 0; t + 1 < begin.size(); ++t)
    if (begin[t + 1] - begin[t] > 1)
      std::stable_sort(order.begin() + begin[t], order.begin() + begin[t + 1], before);
  return order;
}

}  // namespace trainhost::placement
