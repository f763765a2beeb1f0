// See pack_two_ends.hpp. The lifetimes of a model's activations nest (first written, last used): stacked by
// decreasing lifetime they leave no gap. Copies of weights and gradients form a chain in which each overlaps
// the next, which a stack would pile up without limit; these are placed from the top, in the gap of least
// depth that is free for their whole lifetime. The height is the maximum over time of both together, known
// only at the end; then depths become offsets.
#include "core/placement/pack_two_ends.hpp"

#include <algorithm>
#include <cassert>

#include "core/placement/pack_gaps.hpp"
#include "core/placement/pack_order.hpp"
#include "core/placement/skyline.hpp"

namespace trainhost::placement {
namespace {

std::uint32_t lifetime_of(const PackItem& i) { return i.last - i.first; }

}  // namespace

std::uint64_t pack_from_two_ends(std::span<const PackItem> items, std::uint32_t times,
                                 std::uint32_t long_lived, TopOrder top_order, std::uint64_t limit,
                                 std::vector<std::uint64_t>& offset) {
  Order bottom, top;
  for (std::uint32_t i = 0; i < items.size(); ++i)
    (lifetime_of(items[i]) > long_lived ? bottom : top).push_back(i);
  const auto longer_then_larger = [&](std::uint32_t a, std::uint32_t b) {
    const PackItem &x = items[a], &y = items[b];
    return lifetime_of(x) != lifetime_of(y) ? lifetime_of(x) > lifetime_of(y) : x.size > y.size;
  };
  bottom = by_time(
      items, bottom, times, [&](const PackItem& i) { return times - 1 - lifetime_of(i); },
      longer_then_larger);
  // kLatest: what is used last comes first; otherwise by size.
  if (top_order == TopOrder::kLatest)
    top = by_time(
        items, top, times, [&](const PackItem& i) { return times - 1 - i.last; }, longer_then_larger);
  else
    std::stable_sort(top.begin(), top.end(), [&](std::uint32_t a, std::uint32_t b) {
      return items[a].size != items[b].size ? items[a].size > items[b].size
                                            : lifetime_of(items[a]) > lifetime_of(items[b]);
    });

  Skyline sky(times);
  std::uint64_t height = 0;
  for (std::uint32_t i : bottom) {
    offset[i] = sky.stack(items[i].first, items[i].last, items[i].size);
    height = std::max(height, offset[i] + items[i].size);
    if (height > limit) return kTooHigh;
  }
  const std::vector<std::uint64_t> stacked = sky.levels();
  PlacedItems from_top(times);  // offsets are depths below the top
  for (std::uint32_t i : top) {
    offset[i] = from_top.place_in_lowest_gap(items[i]);
    // What the stack needs below the item during its lifetime.
    const std::uint64_t below =
        *std::max_element(stacked.begin() + items[i].first, stacked.begin() + items[i].last + 1);
    height = std::max(height, below + offset[i] + items[i].size);
    if (height > limit) return kTooHigh;
  }
  // Depths are final only now, when the height is known.
  for (std::uint32_t i : top) {
    assert(offset[i] + items[i].size <= height);
    offset[i] = height - offset[i] - items[i].size;
  }
  return height;
}

GrowingStack::GrowingStack(std::span<const PackItem> items, std::uint32_t times)
    : items_(items), times_(times), at_(items.size()) {
  Order growing;
  for (std::uint32_t i = 0; i < items.size(); ++i)
    if (items[i].grows) growing.push_back(i);
  growing = by_time(
      items, growing, times, [](const PackItem& i) { return i.first; },
      [&](std::uint32_t a, std::uint32_t b) { return items[a].size > items[b].size; });
  Skyline stack(times);
  for (std::uint32_t i : growing) {
    at_[i] = stack.stack(items[i].first, items[i].last, items[i].size);
    height_ = std::max(height_, at_[i] + items[i].size);
  }
  for (std::uint32_t i = 0; i < items.size(); ++i)
    if (!items[i].grows) at_[i] = stack.highest(items[i].first, items[i].last);
}

std::uint64_t GrowingStack::pack_others(const Order& others, bool in_gaps, std::uint64_t limit,
                                        std::vector<std::uint64_t>& offset, std::uint32_t& tallest) const {
  assert(offset.size() == items_.size());
  Skyline sky(in_gaps ? 1 : times_);
  PlacedItems from_top(times_);
  std::uint64_t height = height_;
  tallest = 0;
  for (std::uint32_t i : others) {
    const PackItem& it = items_[i];
    if (it.grows) continue;
    offset[i] =  // depth
        in_gaps ? from_top.place_in_lowest_gap(it) : sky.stack(it.first, it.last, it.size);
    const std::uint64_t needed = at_[i] + offset[i] + it.size;
    if (needed > height) height = needed, tallest = i;
    if (height > limit) return kTooHigh;
  }
  for (std::uint32_t i = 0; i < items_.size(); ++i)
    offset[i] = items_[i].grows ? at_[i] : height - offset[i] - items_[i].size;
  return height;
}

}  // namespace trainhost::placement
