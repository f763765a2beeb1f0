// What has been laid into an arena, by where it begins, and the lowest hole for one more: the inner loop of packing (pack.cpp),
// asked ten thousand times for one plan. Most of what lies there lives at another time, so lives are kept apart from places, in
// 16 bits, and compared a block at a time in loops that compilers turn into vector instructions; blocks split, so that an item
// more moves few. Knows no order and no bound.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/plan/pack.hpp"

namespace trainhost::plan {

/// Of at most this many items are holes looked for one item at a time: times in 16 bits, see short_lives().
inline constexpr std::size_t kMostHoles = 32767;

/// Alive in [first, last], both inclusive.
struct ShortLife {
  std::int16_t first, last;
};

/// The same overlaps in fewer times: only those at which something is born are told apart, at most as many as there are items.
inline std::vector<ShortLife> short_lives(std::span<const PackItem> items, std::uint32_t times) {
  std::vector<std::uint32_t> births(times, 0);  // at this time or before
  for (const PackItem& it : items) births[it.first] = 1;
  for (std::size_t t = 1; t < times; ++t) births[t] += births[t - 1];
  std::vector<ShortLife> lives;
  lives.reserve(items.size());
  for (const PackItem& it : items) lives.push_back({static_cast<std::int16_t>(births[it.first] - 1), static_cast<std::int16_t>(births[it.last] - 1)});
  return lives;
}

class LaidOut {
 public:
  /// Where the item goes: the lowest offset at which nothing lies throughout its life. Its bytes are taken.
  std::uint64_t take_lowest_hole(ShortLife life, std::uint64_t size) {
    const std::uint64_t at = lowest_hole(life, size);
    insert(life, at, at + size);
    return at;
  }

 private:
  static constexpr std::size_t kBlock = 64;  // items whose lives are compared together

  /// Neighbours by where they begin; lives behind the last one overlap nothing.
  struct Block {
    Block() { std::fill_n(first, kBlock, INT16_MAX), std::fill_n(last, kBlock, INT16_MIN); }
    std::int16_t first[kBlock], last[kBlock];
    std::uint64_t begin[kBlock], end[kBlock];
    std::size_t items = 0;
  };

  std::uint64_t lowest_hole(ShortLife life, std::uint64_t size) const {
    std::uint64_t at = 0;
    for (const std::uint32_t b : order_) {
      const Block& block = blocks_[b];
      if (block.begin[0] >= at + size) return at;  // everything that follows begins higher still
      for (std::uint64_t alive = alive_with(life, block); alive != 0; alive &= alive - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(alive));
        if (block.begin[i] >= at + size) return at;
        at = std::max(at, block.end[i]);
      }
    }
    return at;
  }

  /// Bit k: item k of the block lives at a time of `life`.
  static std::uint64_t alive_with(ShortLife life, const Block& block) {
    std::uint8_t alive[kBlock];
    for (std::size_t k = 0; k < kBlock; ++k)
      alive[k] = static_cast<std::uint8_t>((block.first[k] <= life.last) & (block.last[k] >= life.first));
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < kBlock; k += 8) bits |= eight_bits(alive + k) << k;
    return bits;
  }

  /// Eight bytes of 0 or 1 as the bits of one, the first the lowest: a product moves each to its place in the top byte.
  static std::uint64_t eight_bits(const std::uint8_t* of) {
    std::uint64_t bytes;
    std::memcpy(&bytes, of, sizeof bytes);
    const std::uint64_t first_lowest = 0x0102040810204080, first_highest = 0x8040201008040201;
    return (bytes * (std::endian::native == std::endian::little ? first_lowest : first_highest)) >> 56;
  }

  void insert(ShortLife life, std::uint64_t begin, std::uint64_t end) {
    if (order_.empty()) add_block(0);
    const auto higher = std::upper_bound(order_.begin(), order_.end(), begin,
                                         [&](std::uint64_t at, std::uint32_t b) { return at < blocks_[b].begin[0]; });
    std::size_t place = higher == order_.begin() ? 0 : static_cast<std::size_t>(higher - order_.begin()) - 1;
    if (blocks_[order_[place]].items == kBlock) {
      split(place);
      if (begin >= blocks_[order_[place + 1]].begin[0]) ++place;
    }
    Block& b = blocks_[order_[place]];
    const std::size_t at = static_cast<std::size_t>(std::upper_bound(b.begin, b.begin + b.items, begin) - b.begin);
    const auto put = [&](auto* values, auto value) {
      std::copy_backward(values + at, values + b.items, values + b.items + 1);
      values[at] = value;
    };
    put(b.first, life.first), put(b.last, life.last), put(b.begin, begin), put(b.end, end);
    ++b.items;
  }

  void add_block(std::size_t place) {
    order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(place), static_cast<std::uint32_t>(blocks_.size()));
    blocks_.emplace_back();
  }

  /// The upper half of a full block goes into one of its own behind it.
  void split(std::size_t place) {
    add_block(place + 1);
    Block &low = blocks_[order_[place]], &high = blocks_[order_[place + 1]];
    constexpr std::size_t kHalf = kBlock / 2;
    const auto move = [](auto* from, auto* to) { std::copy_n(from + kHalf, kHalf, to); };
    move(low.first, high.first), move(low.last, high.last), move(low.begin, high.begin), move(low.end, high.end);
    std::fill_n(low.first + kHalf, kHalf, INT16_MAX), std::fill_n(low.last + kHalf, kHalf, INT16_MIN);
    low.items = high.items = kHalf;
  }

  std::vector<Block> blocks_;
  std::vector<std::uint32_t> order_;  // blocks by where they begin
};

}  // namespace trainhost::plan
