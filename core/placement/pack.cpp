// See pack.hpp. Two ways to place the next item: above everything that overlaps it in time (skyline, n log n,
// suits activations, whose lifetimes nest), or in the lowest gap that is free for its whole lifetime
// (quadratic, for sections of moderate size). Several orders are tried; then, repeatedly, the item that ends
// highest is tried first in the next attempt. For many items, where this takes too long: first fit in order
// of time, then packing from two ends (pack_two_ends.hpp). The optimum is NP-hard; the lower bound is often
// met.
#include <algorithm>
#include <array>
#include <cassert>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "core/placement/pack.hpp"
#include "core/placement/pack_gaps.hpp"
#include "core/placement/pack_order.hpp"
#include "core/placement/pack_two_ends.hpp"
#include "core/placement/skyline.hpp"

namespace trainhost::placement {
namespace {

// Limits of the search in gaps, orders and repairs together: attempts, and compared pairs of items, which is
// about 10 ms for any number of items. If the pairs allow fewer than four attempts, the items are `many`.
constexpr std::size_t kMaxAttempts = 200;
constexpr std::size_t kMaxGrowingAttempts = 24;  // beside stacked gradients, and again of the search in gaps
constexpr std::size_t kMaxComparedPairs = 18000000;

// Settings tried for many items: minimum lifetime of a bottom item, order of the top items. A layer has 20 to
// 40 operations per pass, so an item that outlives several layers is kept for another pass.
constexpr std::pair<std::uint32_t, TopOrder> kTwoEndSettings[] = {{100, TopOrder::kLatest},
                                                                  {400, TopOrder::kLargest}};

using Offsets = std::vector<std::uint64_t>;

/// Places each item above everything that overlaps it in time. Returns the height; kTooHigh as soon as it
/// exceeds `limit`.
std::uint64_t pack_on_skyline(std::span<const PackItem> items, const Order& order, std::uint32_t times,
                              std::uint64_t limit, Offsets& offset) {
  Skyline sky(times);
  std::uint64_t height = 0;
  for (std::uint32_t i : order) {
    const PackItem& it = items[i];
    offset[i] = sky.stack(it.first, it.last, it.size);
    height = std::max(height, offset[i] + it.size);
    if (height > limit) return kTooHigh;
  }
  return height;
}

/// Places each item in the lowest gap that is free for its whole lifetime. Returns the height; kTooHigh as
/// soon as it reaches `limit`.
std::uint64_t pack_in_lowest_gap(std::span<const PackItem> items, const Order& order, std::uint32_t times,
                                 std::uint64_t limit, Offsets& offset) {
  PlacedItems placed(times);
  std::uint64_t height = 0;
  for (std::uint32_t i : order) {
    offset[i] = placed.place_in_lowest_gap(items[i]);
    height = std::max(height, offset[i] + items[i].size);
    if (height >= limit) return kTooHigh;
  }
  return height;
}

/// First fit in order of time, as an allocator: items whose lifetime has ended free their bytes; an item that
/// becomes live gets the lowest gap that it fits in, larger items first. O(items * gaps), and gaps are few.
/// Suits chains of overlapping items, which a skyline stacks without limit: a deeper model repeats the gaps.
std::uint64_t pack_first_fit_by_time(std::span<const PackItem> items, std::uint32_t times, Offsets& offset) {
  Order all(items.size());
  std::iota(all.begin(), all.end(), 0u);
  const Order by_start = by_time(
      items, all, times, [](const PackItem& i) { return i.first; },
      [&](std::uint32_t a, std::uint32_t b) { return items[a].size > items[b].size; });
  const Order by_end = by_time(
      items, all, times, [](const PackItem& i) { return i.last; },
      [](std::uint32_t a, std::uint32_t b) { return a < b; });
  struct Gap {
    std::uint64_t begin, end;
  };
  std::vector<Gap> gaps{{0, UINT64_MAX}};  // by offset; two never touch
  std::uint64_t height = 0;
  std::size_t ended = 0;
  for (std::uint32_t i : by_start) {
    for (; items[by_end[ended]].last < items[i].first; ++ended) {
      const std::uint64_t begin = offset[by_end[ended]], end = begin + items[by_end[ended]].size;
      const auto above = std::ranges::upper_bound(gaps, begin, {}, &Gap::begin);
      const bool below_touches = above != gaps.begin() && std::prev(above)->end == begin;
      if (above->begin == end && below_touches)
        std::prev(above)->end = above->end, gaps.erase(above);
      else if (above->begin == end)
        above->begin = begin;
      else if (below_touches)
        std::prev(above)->end = end;
      else
        gaps.insert(above, {begin, end});
    }
    auto gap = gaps.begin();
    while (gap->end - gap->begin < items[i].size) ++gap;
    offset[i] = gap->begin;
    gap->begin += items[i].size;
    height = std::max(height, gap->begin);
    if (gap->begin == gap->end) gaps.erase(gap);
  }
  return height;
}

/// Order by decreasing key; equal keys by longer lifetime, then larger size, then index.
template <class Key>
Order by_key(std::span<const PackItem> items, Key key) {
  struct SortKey {  // copied next to each other, because sorting is a large part of packing many items
    std::uint64_t key, size;
    std::uint32_t lifetime, item;
  };
  std::vector<SortKey> keys(items.size());
  for (std::uint32_t i = 0; i < items.size(); ++i)
    keys[i] = {std::uint64_t{key(items[i])}, items[i].size, items[i].last - items[i].first, i};
  std::sort(keys.begin(), keys.end(), [](const SortKey& x, const SortKey& y) {
    if (x.key != y.key) return x.key > y.key;
    if (x.lifetime != y.lifetime) return x.lifetime > y.lifetime;
    if (x.size != y.size) return x.size > y.size;
    return x.item < y.item;
  });
  Order o(items.size());
  std::transform(keys.begin(), keys.end(), o.begin(), [](const SortKey& p) { return p.item; });
  return o;
}

/// Makes `top` the first of the order: placed first, it gets a low offset. False if it was the first: the
/// same order would give the same packing again.
bool moved_to_front(Order::iterator top, Order& order) {
  std::rotate(order.begin(), top, top + 1);
  return top != order.begin();
}

/// The item that ends highest.
Order::iterator tallest_of(std::span<const PackItem> items, const Offsets& offset, Order& order) {
  return std::max_element(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return offset[a] + items[a].size < offset[b] + items[b].size;
  });
}

}  // namespace

std::uint64_t pack_bound(std::span<const PackItem> items, std::uint32_t times) {
  std::vector<std::uint64_t> change(std::size_t{times} + 1, 0);
  for (const PackItem& i : items) change[i.first] += i.size, change[i.last + 1] -= i.size;
  std::uint64_t live = 0, most = 0;
  for (std::uint64_t c : change) most = std::max(most, live += c);
  return most;
}

std::uint64_t pack(std::span<const PackItem> items, std::uint32_t times, std::uint64_t good_enough,
                   Offsets& offset) {
  if (items.empty()) return offset.clear(), 0;
  for ([[maybe_unused]] const PackItem& i : items) assert(i.first <= i.last && i.last < times && i.size > 0);
  const std::uint64_t bound = pack_bound(items, times), enough = std::max(good_enough, bound);
  std::uint64_t best = kTooHigh;
  Offsets trial(items.size());
  const auto keep = [&](std::uint64_t height) {
    assert(height >= bound && "no packing is below the bound");
    if (height < best) best = height, offset = trial;
    return best <= enough;
  };
  Order all(items.size());
  std::iota(all.begin(), all.end(), 0u);
  const auto larger = [&](std::uint32_t a, std::uint32_t b) { return items[a].size > items[b].size; };
  const auto longer_then_larger = [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t x = items[a].last - items[a].first, y = items[b].last - items[b].first;
    return x != y ? x > y : larger(a, b);
  };
  std::optional<GrowingStack> stack;
  if (std::any_of(items.begin(), items.end(), [](const PackItem& i) { return i.grows; }))
    stack.emplace(items, times);
  const Order longest = by_time(
      items, all, times, [&](const PackItem& i) { return times - 1 - (i.last - i.first); }, larger);
  // Where not every order can be tried, a skyline packing that cannot be the best is not completed either.
  const bool many = kMaxComparedPairs / (items.size() * items.size()) < 4;
  // Of the others those that end last are nearest to the other end: the gradient of the residual stream, then
  // activations, whose lifetimes nest.
  Order latest_first;
  std::uint32_t tallest = 0;
  if (stack) {
    latest_first = by_time(
        items, all, times, [&](const PackItem& i) { return times - 1 - i.last; }, longer_then_larger);
    for (const Order& o : {std::cref(latest_first), std::cref(longest)})
      if (keep(stack->pack_others(o, false, best - 1, trial, tallest))) return best;
  }
  const auto limit = [&] { return best != kTooHigh ? best : many ? enough : kTooHigh - 1; };
  if (keep(pack_on_skyline(items, longest, times, limit(), trial))) return best;
  const Order earliest = by_time(
      items, all, times, [](const PackItem& i) { return i.first; }, longer_then_larger);
  if (keep(pack_on_skyline(items, earliest, times, limit(), trial))) return best;
  if (many) {
    if (keep(pack_first_fit_by_time(items, times, trial))) return best;
    for (const auto& [long_lived, top_order] : kTwoEndSettings)
      if (keep(pack_from_two_ends(items, times, long_lived, top_order, best - 1, trial))) break;
    return best;
  }
  const std::size_t tries =
      std::clamp<std::size_t>(kMaxComparedPairs / (items.size() * items.size()), 1, kMaxAttempts);
  if (stack) {
    Order order = latest_first;
    for (std::size_t t = 0; t < std::min(tries, kMaxGrowingAttempts); ++t) {
      if (keep(stack->pack_others(order, true, kTooHigh - 1, trial, tallest))) return best;
      if (!moved_to_front(std::find(order.begin(), order.end(), tallest), order)) break;
    }
  }
  // First each order, then repairs of each in turn; sorted by how often an order meets the bound over all
  // preset models.
  Order orders[] = {by_key(items, [](const PackItem& i) { return i.size; }), earliest, longest, {}};
  std::array<Offsets, std::size(orders)> latest;  // the last packing of each order
  std::array<bool, std::size(orders)> repairs_end{};
  const std::size_t attempts = stack ? std::min(tries, kMaxGrowingAttempts) : tries;
  for (std::size_t t = 0; t < attempts; ++t) {
    const std::size_t o = t % std::size(orders);
    if (repairs_end[o]) continue;
    if (orders[o].empty()) orders[o] = by_key(items, [](const PackItem& i) { return i.last; });
    if (t >= std::size(orders) && !moved_to_front(tallest_of(items, latest[o], orders[o]), orders[o])) {
      repairs_end[o] = true;
      continue;
    }
    const bool repaired_later = t + std::size(orders) < attempts;  // a repair needs the complete packing
    if (keep(pack_in_lowest_gap(items, orders[o], times, repaired_later ? kTooHigh : best, trial))) break;
    latest[o] = trial;
  }
  return best;
}

}  // namespace trainhost::placement
