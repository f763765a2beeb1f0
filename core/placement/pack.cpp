// See pack.hpp. Two ways to put the next item of an order: on top of whatever lies below it at any time of
// its life (skyline, n log n, right for activations that die in mirror order), or into the lowest hole that
// is free throughout its life (quadratic, so for sections of moderate size). Several orders are tried, then
// the item that sticks out at the top of the best packing is moved to the front of its order, again and
// again. For many items, where that takes too long: an allocator that lives through the section, then packing
// from two ends (pack_two_ends.hpp). Finding the best packing is NP-hard; the bound is often met because the
// long-lived items nest.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/placement/pack.hpp"
#include "core/placement/pack_gaps.hpp"
#include "core/placement/pack_order.hpp"
#include "core/placement/pack_two_ends.hpp"
#include "core/placement/skyline.hpp"

namespace trainhost::placement {
namespace {

constexpr std::size_t kMostTries = 200;        // with holes, orders and repairs together,
constexpr std::size_t kPairsAtAll = 18000000;  // and the pairs of items they may compare: some 10 ms at any
                                               // size; what affords no four tries is `many`

// Of many items: a layer has some 20 to 40 operations a pass, so what outlives several of them is kept for
// another pass.
constexpr std::pair<std::uint32_t, Nearest> kTwoEndOrders[] = {{100, Nearest::kLatest},
                                                               {400, Nearest::kLargest}};

using Offsets = std::vector<std::uint64_t>;

/// kTooHigh as soon as it rises above `limit`.
std::uint64_t stack(std::span<const PackItem> items, const Order& order, std::uint32_t times,
                    std::uint64_t limit, Offsets& offset) {
  Skyline sky(times);
  std::uint64_t height = 0;
  for (std::uint32_t i : order) {
    const PackItem& it = items[i];
    offset[i] = sky.highest(it.first, it.last);
    sky.raise(it.first, it.last, offset[i] + it.size);
    height = std::max(height, offset[i] + it.size);
    if (height > limit) return kTooHigh;
  }
  return height;
}

/// Each into the lowest hole that is free throughout its life; kTooHigh as soon as it rises to `limit`.
std::uint64_t fill_holes(std::span<const PackItem> items, const Order& order, std::uint32_t times,
                         std::uint64_t limit, Offsets& offset) {
  LaidOut laid(times);
  std::uint64_t height = 0;
  for (std::uint32_t i : order) {
    offset[i] = laid.take_lowest_hole(items[i]);
    height = std::max(height, offset[i] + items[i].size);
    if (height >= limit) return kTooHigh;
  }
  return height;
}

/// As an allocator would: time goes by, what has died gives its bytes back, what is born takes the lowest
/// hole it fits in, the largest first. n log n and steady: a model twice as deep repeats the same holes,
/// where stacking would pile up.
std::uint64_t as_time_goes_by(std::span<const PackItem> items, std::uint32_t times, Offsets& offset) {
  Order all(items.size());
  std::iota(all.begin(), all.end(), 0u);
  const Order births = by_time(
      items, all, times, [](const PackItem& i) { return i.first; },
      [&](std::uint32_t a, std::uint32_t b) { return items[a].size > items[b].size; });
  const Order deaths = by_time(
      items, all, times, [](const PackItem& i) { return i.last; },
      [](std::uint32_t a, std::uint32_t b) { return a < b; });
  std::map<std::uint64_t, std::uint64_t> holes{{0, UINT64_MAX}};  // begin -> end; never two that touch
  std::uint64_t height = 0;
  std::size_t dead = 0;
  for (std::uint32_t i : births) {
    for (; items[deaths[dead]].last < items[i].first; ++dead) {
      const std::uint64_t begin = offset[deaths[dead]], end = begin + items[deaths[dead]].size;
      auto at = holes.emplace(begin, end).first;
      if (auto next = std::next(at); next->first == end) at->second = next->second, holes.erase(next);
      if (at != holes.begin())
        if (auto before = std::prev(at); before->second == begin)
          before->second = at->second, holes.erase(at);
    }
    auto hole = holes.begin();
    while (hole->second - hole->first < items[i].size) ++hole;
    const auto [begin, end] = *hole;
    offset[i] = begin;
    holes.erase(hole);
    holes.emplace(begin + items[i].size, end);
    if (begin + items[i].size == end) holes.erase(end);
    height = std::max(height, begin + items[i].size);
  }
  return height;
}

/// Largest key first; among equals the longer life, then the larger, then the earlier item.
template <class Key>
Order by(std::span<const PackItem> items, Key key) {
  struct Place {  // beside each other, not looked up: sorting is a good part of packing many items
    std::uint64_t key, size;
    std::uint32_t life, item;
  };
  std::vector<Place> places(items.size());
  for (std::uint32_t i = 0; i < items.size(); ++i)
    places[i] = {std::uint64_t{key(items[i])}, items[i].size, items[i].last - items[i].first, i};
  std::sort(places.begin(), places.end(), [](const Place& x, const Place& y) {
    if (x.key != y.key) return x.key > y.key;
    if (x.life != y.life) return x.life > y.life;
    if (x.size != y.size) return x.size > y.size;
    return x.item < y.item;
  });
  Order o(items.size());
  std::transform(places.begin(), places.end(), o.begin(), [](const Place& p) { return p.item; });
  return o;
}

/// Moves the item that ends highest to the front.
void raise_what_sticks_out(std::span<const PackItem> items, const Offsets& offset, Order& order) {
  const auto top = std::max_element(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return offset[a] + items[a].size < offset[b] + items[b].size;
  });
  std::rotate(order.begin(), top, top + 1);
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
  const std::uint64_t enough = std::max(good_enough, pack_bound(items, times));
  std::uint64_t best = kTooHigh;
  Offsets trial(items.size());
  const auto keep = [&](std::uint64_t height) {
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
  const Order longest = by_time(
      items, all, times, [&](const PackItem& i) { return times - 1 - (i.last - i.first); }, larger);
  // Where there is no time to try every order, a stack that rises above the others is not finished either.
  const bool many = kPairsAtAll / (items.size() * items.size()) < 4;
  const auto limit = [&] { return best != kTooHigh ? best : many ? enough : kTooHigh - 1; };
  if (keep(stack(items, longest, times, limit(), trial))) return best;
  const Order earliest = by_time(
      items, all, times, [](const PackItem& i) { return i.first; }, longer_then_larger);
  if (keep(stack(items, earliest, times, limit(), trial))) return best;
  if (many) {
    if (keep(as_time_goes_by(items, times, trial))) return best;
    for (const auto& [lasting, nearest] : kTwoEndOrders)
      if (keep(pack_from_two_ends(items, times, lasting, nearest, best - 1, trial))) break;
    return best;
  }
  // Each order is tried, then repaired in turn; they stand as they most often meet the bound, over all preset
  // models.
  Order orders[] = {by(items, [](const PackItem& i) { return i.size; }), earliest, longest,
                    by(items, [](const PackItem& i) { return i.last; })};
  std::array<Offsets, std::size(orders)> latest;
  const std::size_t tries =
      std::clamp<std::size_t>(kPairsAtAll / (items.size() * items.size()), 1, kMostTries);
  for (std::size_t t = 0; t < tries; ++t) {
    const std::size_t o = t % std::size(orders);
    if (t >= std::size(orders)) raise_what_sticks_out(items, latest[o], orders[o]);
    const bool repaired = t + std::size(orders) < tries;  // which asks what sticks out of the whole
    if (keep(fill_holes(items, orders[o], times, repaired ? kTooHigh : best, trial))) break;
    latest[o] = trial;
  }
  return best;
}

}  // namespace trainhost::placement
