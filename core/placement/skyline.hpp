// The height of a packing over time. Used to stack items in pack.cpp and pack_two_ends.cpp.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <vector>

namespace trainhost::placement {

/// Height by time step, as segments of equal height. An item that is stacked replaces the segments of its
/// lifetime by one, and adds two at most: so stacking n items visits fewer than 3 n segments.
class Skyline {
 public:
  explicit Skyline(std::uint32_t times)
      : times_(std::max(times, 1u)), height_(times_, 0), starts_((times_ + 63) / 64, 0) {
    starts_[0] = 1;
  }
  /// The maximum in [first, last].
  std::uint64_t highest(std::uint32_t first, std::uint32_t last) const {
    std::uint64_t most = height_[start_of(first)];
    for (std::uint32_t s = next_start(first); s <= last; s = next_start(s)) most = std::max(most, height_[s]);
    return most;
  }
  /// Puts an item of this size on the highest segment of its lifetime, and returns its offset.
  std::uint64_t stack(std::uint32_t first, std::uint32_t last, std::uint64_t size) {
    assert(first <= last && last < times_);
    std::uint64_t at_end = height_[start_of(first)], offset = at_end;  // at_end: height at `last`
    for (std::uint32_t s = next_start(first); s <= last; s = next_start(s)) {
      at_end = height_[s], offset = std::max(offset, at_end);
      starts_[s / 64] &= ~bit(s);
    }
    if (last + 1 < times_ && !is_start(last + 1)) set_start(last + 1, at_end);
    set_start(first, offset + size);
    return offset;
  }
  /// The height at every time step.
  std::vector<std::uint64_t> levels() const {
    std::vector<std::uint64_t> level(height_);
    for (std::uint32_t t = 1; t < times_; ++t)
      if (!is_start(t)) level[t] = level[t - 1];
    return level;
  }

 private:
  static std::uint64_t bit(std::uint32_t t) { return std::uint64_t{1} << (t % 64); }
  bool is_start(std::uint32_t t) const { return starts_[t / 64] & bit(t); }
  void set_start(std::uint32_t t, std::uint64_t height) { starts_[t / 64] |= bit(t), height_[t] = height; }
  /// Start of the segment that contains t. Time 0 is always a start.
  std::uint32_t start_of(std::uint32_t t) const {
    std::uint32_t word = t / 64;
    std::uint64_t bits = starts_[word] & (UINT64_MAX >> (63 - t % 64));
    while (bits == 0) bits = starts_[--word];
    return word * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(bits));
  }
  /// Start of the segment behind the one that contains t; UINT32_MAX: there is none.
  std::uint32_t next_start(std::uint32_t t) const {
    std::uint32_t word = t / 64;
    std::uint64_t bits = starts_[word] & ~(UINT64_MAX >> (63 - t % 64));
    while (bits == 0)
      if (++word == starts_.size())
        return UINT32_MAX;
      else
        bits = starts_[word];
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }

  std::uint32_t times_;
  std::vector<std::uint64_t> height_;  // of a segment, at its start
  std::vector<std::uint64_t> starts_;  // one bit per time step: a segment starts there
};

}  // namespace trainhost::placement
