// The height of a packing over time, as a segment tree: query and update in O(log n). Used to stack items in
// pack.cpp and pack_two_ends.cpp.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace trainhost::placement {

/// Height by time step: raises an interval to a level, returns the maximum level in an interval.
class Skyline {
 public:
  explicit Skyline(std::uint32_t times) {
    while (leaves_ < times) leaves_ *= 2;
    top_.assign(2 * leaves_, 0);
    flat_.assign(2 * leaves_, 0);
  }
  std::uint64_t highest(std::uint32_t first, std::uint32_t last) const {
    return highest(1, 0, leaves_ - 1, first, last);
  }
  void raise(std::uint32_t first, std::uint32_t last, std::uint64_t level) {
    raise(1, 0, leaves_ - 1, first, last, level);
  }
  /// The level at every time step.
  std::vector<std::uint64_t> levels(std::uint32_t times) const {
    std::vector<std::uint64_t> below(flat_);
    for (std::size_t n = 2; n < below.size(); ++n) below[n] = std::max(below[n], below[n / 2]);
    below.erase(below.begin(), below.begin() + leaves_);
    below.resize(times);
    return below;
  }

 private:
  // Of the interval of node n: flat_[n] is a lower bound on the level everywhere, top_[n] the maximum level.
  std::uint64_t highest(std::size_t n, std::uint32_t lo, std::uint32_t hi, std::uint32_t first,
                        std::uint32_t last) const {
    if (first <= lo && hi <= last) return top_[n];
    const std::uint32_t mid = lo + (hi - lo) / 2;
    std::uint64_t h = flat_[n];
    if (first <= mid) h = std::max(h, highest(2 * n, lo, mid, first, last));
    if (last > mid) h = std::max(h, highest(2 * n + 1, mid + 1, hi, first, last));
    return h;
  }
  void raise(std::size_t n, std::uint32_t lo, std::uint32_t hi, std::uint32_t first, std::uint32_t last,
             std::uint64_t level) {
    top_[n] = std::max(top_[n], level);
    if (first <= lo && hi <= last) {
      flat_[n] = std::max(flat_[n], level);
      return;
    }
    const std::uint32_t mid = lo + (hi - lo) / 2;
    if (first <= mid) raise(2 * n, lo, mid, first, last, level);
    if (last > mid) raise(2 * n + 1, mid + 1, hi, first, last, level);
  }
  std::uint32_t leaves_ = 1;
  std::vector<std::uint64_t> top_, flat_;
};

}  // namespace trainhost::placement
