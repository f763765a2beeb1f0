// What has been laid into an arena and the lowest hole for one more: the inner loop of packing (pack.cpp,
// pack_two_ends.cpp), asked ten thousand times for one plan. Most of what lies there lives at another time:
// so it stands in windows of time, an item in each that it lives in, and within one lives are compared a
// block at a time in loops that compilers turn into vector instructions. Knows no order and no bound.
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

/// Alive in [first, last], both inclusive. Signed: that is what vector instructions compare.
struct Life {
  std::int32_t first, last;
};

/// Items by where they begin, in blocks that split: so that one more moves few.
class Shelf {
  static constexpr std::size_t kBlock = 64;  // items whose lives are compared together

  struct Block {
    Block() { never_alive(0); }
    /// What is not filled lives at no time.
    void never_alive(std::size_t from) {
      std::fill(first + from, first + kBlock, std::numeric_limits<std::int32_t>::max());
      std::fill(last + from, last + kBlock, std::numeric_limits<std::int32_t>::min());
    }
    std::uint64_t all() const { return items == kBlock ? UINT64_MAX : (std::uint64_t{1} << items) - 1; }
    /// Between its items, were all of them alive; top: where the highest ends. Found when first asked for.
    std::uint64_t widest_hole() const {
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
    mutable bool known = false;  // widest and top: of the items as they are
    mutable std::uint64_t widest = 0, top = 0;
  };

 public:
  /// Goes once over those alive during `life`, from low to high, as far as it is asked to.
  class Walk {
   public:
    Walk(const Shelf& shelf, Life life) : shelf_(&shelf), life_(life) {}

    /// `at`, or the lowest offset above it where `size` bytes meet none of them. Of one walk `at` never
    /// falls.
    std::uint64_t past(std::uint64_t at, std::uint64_t size) {
      for (;;) {
        for (std::uint64_t alive = alive_; alive != 0; alive &= alive - 1) {
          const auto i = static_cast<std::size_t>(std::countr_zero(alive));
          if (block_->begin[i] >= at + size)
            return alive_ = alive, at;  // everything that follows begins higher still
          at = std::max(at, block_->end[i]);
        }
        alive_ = 0;
        if (next_ == shelf_->order_.size() || shelf_->at(next_).begin[0] >= at + size) return at;
        block_ = &shelf_->at(next_++);
        alive_ = alive_with(life_, *block_);
        if (alive_ == block_->all() && block_->widest_hole() < size)
          at = std::max(at, block_->top), alive_ = 0;
      }
    }

   private:
    const Shelf* shelf_;
    Life life_;
    std::size_t next_ = 0;
    const Block* block_ = nullptr;  // the one before
    std::uint64_t alive_ = 0;       // in it, those that are not passed yet
  };

  void insert(Life life, std::uint64_t begin, std::uint64_t end) {
    const auto higher =
        std::upper_bound(order_.begin(), order_.end(), begin,
                         [&](std::uint64_t at, std::uint32_t b) { return at < blocks_[b].begin[0]; });
    std::size_t place = higher == order_.begin() ? 0 : static_cast<std::size_t>(higher - order_.begin()) - 1;
    if (order_.empty()) add_block(0);
    if (at(place).items == kBlock) {
      split(place);
      if (begin >= at(place + 1).begin[0]) ++place;
    }
    Block& b = blocks_[order_[place]];
    const std::size_t i =
        static_cast<std::size_t>(std::upper_bound(b.begin, b.begin + b.items, begin) - b.begin);
    const auto put = [&](auto* values, auto value) {
      std::copy_backward(values + i, values + b.items, values + b.items + 1);
      values[i] = value;
    };
    put(b.first, life.first), put(b.last, life.last), put(b.begin, begin), put(b.end, end);
    ++b.items;
    b.known = false;
  }

 private:
  const Block& at(std::size_t place) const { return blocks_[order_[place]]; }

  /// Bit k: item k of the block lives at a time of `life`.
  static std::uint64_t alive_with(Life life, const Block& block) {
    std::uint8_t alive[kBlock];
    for (std::size_t k = 0; k < kBlock; ++k)
      alive[k] = static_cast<std::uint8_t>((block.first[k] <= life.last) & (block.last[k] >= life.first));
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < kBlock; k += 8) bits |= eight_bits(alive + k) << k;
    return bits;
  }

  /// Eight bytes of 0 or 1 as the bits of one, the first the lowest: a product moves each to its place in the
  /// top byte.
  static std::uint64_t eight_bits(const std::uint8_t* of) {
    std::uint64_t bytes;
    std::memcpy(&bytes, of, sizeof bytes);
    const std::uint64_t first_lowest = 0x0102040810204080, first_highest = 0x8040201008040201;
    return (bytes * (std::endian::native == std::endian::little ? first_lowest : first_highest)) >> 56;
  }

  void add_block(std::size_t place) {
    order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(place),
                  static_cast<std::uint32_t>(blocks_.size()));
    blocks_.emplace_back();
  }

  /// The upper half of a full block goes into one of its own behind it.
  void split(std::size_t place) {
    add_block(place + 1);
    Block &low = blocks_[order_[place]], &high = blocks_[order_[place + 1]];
    constexpr std::size_t kHalf = kBlock / 2;
    const auto move = [](auto* from, auto* to) { std::copy_n(from + kHalf, kHalf, to); };
    move(low.first, high.first), move(low.last, high.last), move(low.begin, high.begin),
        move(low.end, high.end);
    low.never_alive(kHalf);
    low.items = high.items = kHalf;
    low.known = false;
  }

  std::vector<Block> blocks_;
  std::vector<std::uint32_t> order_;  // blocks by where they begin
};

class LaidOut {
 public:
  explicit LaidOut(std::uint32_t times) : windows_(times / kWindow + 1) {}

  /// Where the item goes: the lowest offset at which nothing lies throughout its life. Its bytes are taken.
  std::uint64_t take_lowest_hole(const PackItem& item) {
    const Life life{static_cast<std::int32_t>(item.first), static_cast<std::int32_t>(item.last)};
    const std::uint32_t from = item.first / kWindow, to = item.last / kWindow;
    walks_.assign(1, {lasting_, life});
    for (std::uint32_t w = from; w <= to; ++w) walks_.push_back({windows_[w], life});
    // What is in the way on one shelf raises it for all: a hole is where none of them does any more.
    std::uint64_t at = 0;
    for (std::size_t agree = 0, w = 0; agree < walks_.size(); w = (w + 1) % walks_.size()) {
      const std::uint64_t higher = walks_[w].past(at, item.size);
      agree = higher == at ? agree + 1 : 1;
      at = higher;
    }
    if (to - from >= kMostWindows)
      lasting_.insert(life, at, at + item.size);
    else
      for (std::uint32_t w = from; w <= to; ++w) windows_[w].insert(life, at, at + item.size);
    return at;
  }

 private:
  static constexpr std::uint32_t kWindow = 128,
                                 kMostWindows = 2;  // times; what lives in more stands by itself
  Shelf lasting_;
  std::vector<Shelf> windows_;
  std::vector<Shelf::Walk> walks_;
};

}  // namespace trainhost::placement
