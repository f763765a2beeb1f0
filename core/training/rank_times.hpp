// How long each rank of a run computes, and how long it waits for the others: smoothed for the progress line,
// and in all for the summary. A rank that is slower than the others waits the least, and all others wait for
// it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace trainhost::training {

/// Of one rank: a step, or all steps. Computing is the time of the steps in which the rank did not wait.
struct RankTime {
  double compute_ms = 0, wait_ms = 0;
  double bytes = 0;  // sent to other ranks
};

class RankTimes {
 public:
  /// The times of a step, by rank. The number of ranks is the same in every call.
  void add(std::span<const RankTime> of_ranks);

  const std::vector<RankTime>& last() const { return last_; }
  const std::vector<RankTime>& total() const { return total_; }
  /// Averages over about the last 20 steps. `wait_share`: of the time of a step, the mean over the ranks.
  /// `excess`: by which share the slowest rank computes longer than the mean.
  struct Summary {
    double wait_share = 0, excess = 0;
    std::uint32_t slowest = 0;
  };
  Summary recent() const;

 private:
  std::vector<RankTime> last_, total_, recent_;  // recent_: not divided by the sum of the weights
};

/// The rank that computes longest; the lowest of several. `of_ranks` is not empty.
std::uint32_t slowest_rank(std::span<const RankTime> of_ranks);
RankTime mean_of(std::span<const RankTime> of_ranks);

}  // namespace trainhost::training
