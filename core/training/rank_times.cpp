// See rank_times.hpp.
#include "core/training/rank_times.hpp"

#include <algorithm>
#include <cassert>

namespace trainhost::training {
namespace {

/// As the smoothed tokens per second: about the last 20 steps.
constexpr double kWeight = 0.05;

void add_to(RankTime& to, const RankTime& t, double before, double weight) {
  to.compute_ms = before * to.compute_ms + weight * t.compute_ms;
  to.wait_ms = before * to.wait_ms + weight * t.wait_ms;
  to.bytes = before * to.bytes + weight * t.bytes;
}

}  // namespace

void RankTimes::add(std::span<const RankTime> of_ranks) {
  assert(total_.empty() || total_.size() == of_ranks.size());
  last_.assign(of_ranks.begin(), of_ranks.end());
  total_.resize(last_.size()), recent_.resize(last_.size());
  for (std::size_t r = 0; r < last_.size(); ++r) {
    add_to(total_[r], last_[r], 1, 1);
    add_to(recent_[r], last_[r], 1 - kWeight, kWeight);
  }
}

/// Only ratios of the averages are reported, so the sum of the weights, which is less than 1 at the start,
/// cancels out.
RankTimes::Summary RankTimes::recent() const {
  Summary s;
  if (recent_.empty()) return s;
  const RankTime mean = mean_of(recent_);
  const double step_ms = mean.compute_ms + mean.wait_ms;
  s.slowest = slowest_rank(recent_);
  s.wait_share = step_ms > 0 ? mean.wait_ms / step_ms : 0;
  s.excess = mean.compute_ms > 0 ? recent_[s.slowest].compute_ms / mean.compute_ms - 1 : 0;
  return s;
}

std::uint32_t slowest_rank(std::span<const RankTime> of_ranks) {
  const auto slowest =
      std::max_element(of_ranks.begin(), of_ranks.end(),
                       [](const RankTime& a, const RankTime& b) { return a.compute_ms < b.compute_ms; });
  return static_cast<std::uint32_t>(slowest - of_ranks.begin());
}

RankTime mean_of(std::span<const RankTime> of_ranks) {
  RankTime mean;
  for (const RankTime& t : of_ranks) add_to(mean, t, 1, 1.0 / static_cast<double>(of_ranks.size()));
  return mean;
}

}  // namespace trainhost::training
