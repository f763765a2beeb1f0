// See pack_two_ends.hpp. A model's layers keep activations that nest (first made, last used): stacked by
// longest life they leave no hole. Copies of weights and gradients follow each other in a chain, each
// overlapping the next, which a stack would pile up for ever: these hang from the top, by the depth at which
// a hole is free throughout their life. The height is what the two need together at the fullest time, known
// only at the end; depths become offsets then.
#include "core/placement/pack_two_ends.hpp"

#include <algorithm>

#include "core/placement/pack_gaps.hpp"
#include "core/placement/pack_order.hpp"
#include "core/placement/skyline.hpp"

namespace trainhost::placement {
namespace {

std::uint32_t life(const PackItem& i) { return i.last - i.first; }

}  // namespace

std::uint64_t pack_from_two_ends(std::span<const PackItem> items, std::uint32_t times, std::uint32_t lasting,
                                 Nearest nearest, std::uint64_t limit, std::vector<std::uint64_t>& offset) {
  Order bottom, top;
  for (std::uint32_t i = 0; i < items.size(); ++i) (life(items[i]) > lasting ? bottom : top).push_back(i);
  const auto longer_then_larger = [&](std::uint32_t a, std::uint32_t b) {
    const PackItem &x = items[a], &y = items[b];
    return life(x) != life(y) ? life(x) > life(y) : x.size > y.size;
  };
  bottom = by_time(
      items, bottom, times, [&](const PackItem& i) { return times - 1 - life(i); }, longer_then_larger);
  if (nearest == Nearest::kLatest)
    top = by_time(
        items, top, times, [&](const PackItem& i) { return times - 1 - i.last; }, longer_then_larger);
  else
    std::stable_sort(top.begin(), top.end(), [&](std::uint32_t a, std::uint32_t b) {
      return items[a].size != items[b].size ? items[a].size > items[b].size : life(items[a]) > life(items[b]);
    });

  Skyline sky(times);
  std::uint64_t height = 0;
  for (std::uint32_t i : bottom) {
    offset[i] = sky.highest(items[i].first, items[i].last);
    sky.raise(items[i].first, items[i].last, offset[i] + items[i].size);
    height = std::max(height, offset[i] + items[i].size);
    if (height > limit) return kTooHigh;
  }
  const std::vector<std::uint64_t> stacked = sky.levels(times);
  LaidOut hanging(times);
  for (std::uint32_t i : top) {
    offset[i] = hanging.take_lowest_hole(items[i]);
    const std::uint64_t below =
        *std::max_element(stacked.begin() + items[i].first, stacked.begin() + items[i].last + 1);
    height = std::max(height, below + offset[i] + items[i].size);
    if (height > limit) return kTooHigh;
  }
  for (std::uint32_t i : top) offset[i] = height - offset[i] - items[i].size;
  return height;
}

}  // namespace trainhost::placement
