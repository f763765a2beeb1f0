// The items placed so far and the lowest gap for one more: the inner loop of packing (pack.cpp,
// pack_two_ends.cpp), called about ten thousand times per plan. Most placed items are live at another time,
// so they are kept in windows of time, in every window that they overlap; within a window live ranges are
// compared 64 at a time, in loops that compilers vectorise.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/placement/pack.hpp"

namespace trainhost::placement {

/// Live in [first, last], both inclusive. Signed, because vector instructions compare signed integers.
struct LiveRange {
  std::int32_t first, last;
};

/// Items sorted by offset, in blocks that split when full, so that an insertion moves few items.
class ItemsByOffset {
  static constexpr std::size_t kBlock = 64;  // items whose live ranges are compared together

  struct Block {
    Block() { mark_unused(0); }
    /// Entries without an item get an empty live range.
    void mark_unused(std::size_t from) {
      std::fill(first + from, first + kBlock, std::numeric_limits<std::int32_t>::max());
      std::fill(last + from, last + kBlock, std::numeric_limits<std::int32_t>::min());
    }
    std::uint64_t all() const { return items == kBlock ? UINT64_MAX : (std::uint64_t{1} << items) - 1; }
    /// The widest gap between its items, all of them taken as live; also sets top, their highest end. Cached.
    std::uint64_t widest_gap() const {
      if (known) return widest;
      known = true, widest = 0, top = begin[0];
      for (std::size_t i = 0; i < items; ++i) {
        if (begin[i] > top) widest = std::max(widest, begin[i] - top);
        top = std::max(top, end[i]);
      }
      return widest;
    }
    std::int32_t first[kBlock], last[kBlock];
    std::uint64_t begin[kBlock], end[kBlock];
    std::size_t items = 0;
    mutable bool known = false;  // widest and top are up to date
    mutable std::uint64_t widest = 0, top = 0;
  };

 public:
  /// One pass over the items that are live during `range`, by increasing offset, continued on demand.
  class Scan {
   public:
    Scan(const ItemsByOffset& items, LiveRange range) : items_(&items), range_(range) {}

    /// The lowest offset from `at` on at which `size` bytes overlap no live item. Calls on one Scan must not
    /// decrease `at`.
    std::uint64_t lowest_free(std::uint64_t at, std::uint64_t size) {
      for (;;) {
        for (std::uint64_t live = live_; live != 0; live &= live - 1) {
          const auto i = static_cast<std::size_t>(std::countr_zero(live));
          if (block_->begin[i] >= at + size) return live_ = live, at;  // all further items start higher
          at = std::max(at, block_->end[i]);
        }
        live_ = 0;
        if (next_ == items_->order_.size() || items_->at(next_).begin[0] >= at + size) return at;
        block_ = &items_->at(next_++);
        live_ = live_during(range_, *block_);
        if (live_ == block_->all() && block_->widest_gap() < size) at = std::max(at, block_->top), live_ = 0;
      }
    }

   private:
    const ItemsByOffset* items_;
    LiveRange range_;
    std::size_t next_ = 0;
    const Block* block_ = nullptr;  // the block before next_
    std::uint64_t live_ = 0;        // mask: its live items that have not been passed
  };

  void insert(LiveRange range, std::uint64_t begin, std::uint64_t end) {
    const auto higher =
        std::upper_bound(order_.begin(), order_.end(), begin,
                         [&](std::uint64_t at, std::uint32_t b) { return at < blocks_[b].begin[0]; });
    std::size_t position =
        higher == order_.begin() ? 0 : static_cast<std::size_t>(higher - order_.begin()) - 1;
    if (order_.empty()) add_block(0);
    if (at(position).items == kBlock) {
      split(position);
      if (begin >= at(position + 1).begin[0]) ++position;
    }
    Block& b = blocks_[order_[position]];
    const std::size_t i =
        static_cast<std::size_t>(std::upper_bound(b.begin, b.begin + b.items, begin) - b.begin);
    const auto put = [&](auto* values, auto value) {
      std::copy_backward(values + i, values + b.items, values + b.items + 1);
      values[i] = value;
    };
    put(b.first, range.first), put(b.last, range.last), put(b.begin, begin), put(b.end, end);
    ++b.items;
    b.known = false;
  }

 private:
  const Block& at(std::size_t position) const { return blocks_[order_[position]]; }

  /// Bit k: item k of the block is live at some time of `range`.
  static std::uint64_t live_during(LiveRange range, const Block& block) {
    std::uint8_t live[kBlock];
    for (std::size_t k = 0; k < kBlock; ++k)
      live[k] = static_cast<std::uint8_t>((block.first[k] <= range.last) & (block.last[k] >= range.first));
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < kBlock; k += 8) bits |= pack_eight_bits(live + k) << k;
    return bits;
  }

  /// Packs eight bytes of 0 or 1 into the bits of one byte, the first byte into bit 0: a multiplication moves
  /// each to its position in the top byte.
  static std::uint64_t pack_eight_bits(const std::uint8_t* of) {
    std::uint64_t bytes;
    std::memcpy(&bytes, of, sizeof bytes);
    const std::uint64_t first_lowest = 0x0102040810204080, first_highest = 0x8040201008040201;
    return (bytes * (std::endian::native == std::endian::little ? first_lowest : first_highest)) >> 56;
  }

  void add_block(std::size_t position) {
    order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(position),
                  static_cast<std::uint32_t>(blocks_.size()));
    blocks_.emplace_back();
  }

  /// Moves the upper half of a full block into a new block behind it.
  void split(std::size_t position) {
    add_block(position + 1);
    Block &low = blocks_[order_[position]], &high = blocks_[order_[position + 1]];
    constexpr std::size_t kHalf = kBlock / 2;
    const auto move = [](auto* from, auto* to) { std::copy_n(from + kHalf, kHalf, to); };
    move(low.first, high.first), move(low.last, high.last), move(low.begin, high.begin),
        move(low.end, high.end);
    low.mark_unused(kHalf);
    low.items = high.items = kHalf;
    low.known = false;
  }

  std::vector<Block> blocks_;
  std::vector<std::uint32_t> order_;  // indices of blocks, by the offset of their first item
};

/// All placed items, in windows of time.
class PlacedItems {
 public:
  explicit PlacedItems(std::uint32_t times) : windows_(times / kWindow + 1) {}

  /// Returns the lowest offset that is free for the item's whole lifetime, and inserts the item there.
  std::uint64_t place_in_lowest_gap(const PackItem& item) {
    const LiveRange range{static_cast<std::int32_t>(item.first), static_cast<std::int32_t>(item.last)};
    const std::uint32_t from = item.first / kWindow, to = item.last / kWindow;
    scans_.assign(1, {long_lived_, range});
    for (std::uint32_t w = from; w <= to; ++w) scans_.push_back({windows_[w], range});
    // Each window may raise the offset for all others; the gap is found when all agree in one round.
    std::uint64_t at = 0;
    for (std::size_t agree = 0, w = 0; agree < scans_.size(); w = (w + 1) % scans_.size()) {
      const std::uint64_t higher = scans_[w].lowest_free(at, item.size);
      agree = higher == at ? agree + 1 : 1;
      at = higher;
    }
    if (to - from >= kMaxWindows)
      long_lived_.insert(range, at, at + item.size);
    else
      for (std::uint32_t w = from; w <= to; ++w) windows_[w].insert(range, at, at + item.size);
    return at;
  }

 private:
  static constexpr std::uint32_t kWindow = 128;    // time steps per window
  static constexpr std::uint32_t kMaxWindows = 2;  // items that overlap more windows are kept in long_lived_
  ItemsByOffset long_lived_;
  std::vector<ItemsByOffset> windows_;
  std::vector<ItemsByOffset::Scan> scans_;
};

}  // namespace trainhost::placement
