// What has been laid into an arena, by where it begins, and the lowest hole for one more: the inner loop of packing (pack.cpp),
// asked ten thousand times for one plan. Most of what lies there lives at another time, so lives are kept apart from places, in
// 16 bits, and compared a block at a time in loops that compilers turn into vector instructions. Knows no order and no bound.
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
  /// Room for `most` items without moving.
  explicit LaidOut(std::size_t most) {
    for (auto* v : {&first_, &last_}) v->reserve(most + kBlock);
    for (auto* v : {&begin_, &end_}) v->reserve(most);
    first_.assign(kBlock, INT16_MAX);  // blocks are read whole: what lies behind the last item never lives
    last_.assign(kBlock, INT16_MIN);
  }

  /// Where the item goes: the lowest offset at which nothing lies throughout its life. Its bytes are taken.
  std::uint64_t take_lowest_hole(ShortLife life, std::uint64_t size) {
    const std::uint64_t at = lowest_hole(life, size);
    const auto place = std::upper_bound(begin_.begin(), begin_.end(), at) - begin_.begin();
    begin_.insert(begin_.begin() + place, at);
    end_.insert(end_.begin() + place, at + size);
    first_.insert(first_.begin() + place, life.first);
    last_.insert(last_.begin() + place, life.last);
    return at;
  }

 private:
  static constexpr std::size_t kBlock = 64;  // items whose lives are compared together

  std::uint64_t lowest_hole(ShortLife life, std::uint64_t size) const {
    std::uint64_t at = 0;
    for (std::size_t block = 0; block < begin_.size(); block += kBlock)
      for (std::uint64_t alive = alive_with(life, block); alive != 0; alive &= alive - 1) {
        const std::size_t i = block + static_cast<std::size_t>(std::countr_zero(alive));
        if (begin_[i] >= at + size) return at;  // everything that follows begins higher still
        at = std::max(at, end_[i]);
      }
    return at;
  }

  /// Bit k: item k of the block lives at a time of `life`.
  std::uint64_t alive_with(ShortLife life, std::size_t block) const {
    const std::int16_t *first = first_.data() + block, *last = last_.data() + block;
    std::uint8_t alive[kBlock];
    for (std::size_t k = 0; k < kBlock; ++k) alive[k] = static_cast<std::uint8_t>((first[k] <= life.last) & (last[k] >= life.first));
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

  std::vector<std::int16_t> first_, last_;   // of the items in the order of begin_, then a block that never lives
  std::vector<std::uint64_t> begin_, end_;
};

}  // namespace trainhost::plan
