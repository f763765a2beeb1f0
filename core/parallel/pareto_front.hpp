// The two collections of a search: the fastest so many, and the front of memory against time. Both keep a
// total order, so that what they hold does not depend on the order in which layouts came.
#pragma once
#include <cstdint>
#include <vector>

#include "core/parallel/layout_search.hpp"

namespace trainhost::parallel {

/// Faster first; of equals the one with less memory, then the earlier.
bool faster(const Found& a, const Found& b);
/// Less device memory first; of equals the faster, then the earlier.
bool smaller(const Found& a, const Found& b);

class Fastest {
 public:
  explicit Fastest(std::size_t top) : top_(top) {}
  bool wants(double seconds) const {
    return kept_.size() < top_ || (top_ && seconds <= kept_.back().step_seconds);
  }
  void add(const Found& f);
  std::vector<Found>& kept() { return kept_; }

 private:
  std::size_t top_;
  std::vector<Found> kept_;
};

class Front {
 public:
  /// Whether a layout of at least so many bytes and seconds could still be on it.
  bool wants(std::uint64_t bytes, double seconds) const;
  void add(const Found& f);
  std::vector<Found>& kept() { return kept_; }

 private:
  std::vector<Found> kept_;  // bytes rise strictly, seconds fall strictly
};

}  // namespace trainhost::parallel
