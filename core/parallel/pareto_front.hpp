// The two result collections of a search: the `top` fastest layouts, and the Pareto front of memory and time.
// Both use a total order, so their content does not depend on the order of insertion.
#pragma once
#include <cstdint>
#include <vector>

#include "core/parallel/layout_search.hpp"

namespace trainhost::parallel {

/// Order by time, then memory, then index.
bool faster(const FoundLayout& a, const FoundLayout& b);
/// Order by device memory, then time, then index.
bool smaller(const FoundLayout& a, const FoundLayout& b);

class FastestLayouts {
 public:
  explicit FastestLayouts(std::size_t top) : top_(top) {}
  bool admits(double seconds) const {
    return kept_.size() < top_ || (top_ && seconds <= kept_.back().step_seconds);
  }
  void add(const FoundLayout& f);
  std::vector<FoundLayout>& kept() { return kept_; }

 private:
  std::size_t top_;
  std::vector<FoundLayout> kept_;
};

class ParetoFront {
 public:
  /// Whether a layout with at least these bytes and seconds can be on the Pareto front.
  bool admits(std::uint64_t bytes, double seconds) const;
  void add(const FoundLayout& f);
  std::vector<FoundLayout>& kept() { return kept_; }

 private:
  std::vector<FoundLayout> kept_;  // bytes strictly increase, seconds strictly decrease
};

}  // namespace trainhost::parallel
