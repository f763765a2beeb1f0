// The height of a packing over time, in log n a question: what stacking (pack.cpp, pack_two_ends.cpp) asks
// for every item. Knows neither items nor offsets.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace trainhost::placement {

/// Height of the skyline over time: raise an interval to a level, ask for the highest level in an interval.
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
  /// At every time.
  std::vector<std::uint64_t> levels(std::uint32_t times) const {
    std::vector<std::uint64_t> below(flat_);
    for (std::size_t n = 2; n < below.size(); ++n) below[n] = std::max(below[n], below[n / 2]);
    below.erase(below.begin(), below.begin() + leaves_);
    below.resize(times);
    return below;
  }

 private:
  // flat_[n]: at least this high everywhere below n; top_[n]: highest point below n, flat_ of n included.
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
