// The curves of a run in bounded memory: loss, gradient norm, tokens per second, learning rate and memory
// over the steps. Steps are grouped; a group keeps the mean, the smallest and the largest value of each
// curve, and the groups double when there are too many, so a run of any length has at most `points` of them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/json_value.hpp"

namespace trainhost::report {

enum class Metric { kLoss, kGradNorm, kTokensPerS, kLr, kMemory };
inline constexpr std::array kMetrics = {Metric::kLoss, Metric::kGradNorm, Metric::kTokensPerS, Metric::kLr,
                                        Metric::kMemory};
/// Whether values differ from step to step, so that a group needs its range beside the mean: not the learning
/// rate and the memory, which the run itself sets.
constexpr bool is_noisy(Metric m) { return m != Metric::kLr && m != Metric::kMemory; }

/// The key in the events of metrics.jsonl: "loss", "grad_norm", "tokens_per_s", "lr", "memory_bytes".
const char* key_of(Metric m);

class RunCurves {
 public:
  using Values = std::array<double, kMetrics.size()>;  // not finite: not known

  /// `points`: largest number of groups, at least 2.
  explicit RunCurves(std::size_t points = 400) : points_(points) {}
  /// Steps ascend.
  void add(std::uint64_t step, const Values& v);

  /// Values of one metric in one group.
  struct Part {
    double sum = 0, least = 0, most = 0;
    std::uint64_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  struct Group {
    std::uint64_t last_step = 0, steps = 0;
    std::array<Part, kMetrics.size()> parts;
  };
  const std::vector<Group>& groups() const { return groups_; }
  /// Of the last step; zeros before the first one.
  const Values& last() const { return last_; }
  /// Over all steps.
  const Part& whole(Metric m) const { return whole_[static_cast<std::size_t>(m)]; }
  /// {"x": [steps], "loss": {"y": [means], "low": [...], "high": [...]}, ...}. low and high are absent where
  /// each group is one step. Six significant digits; null where a group has no value.
  JsonValue json() const;

 private:
  std::size_t points_;
  std::uint64_t per_group_ = 1;
  std::vector<Group> groups_;
  Values last_{};
  std::array<Part, kMetrics.size()> whole_{};
};

/// Six significant digits, so that its decimal form is short.
double six_digits(double v);

}  // namespace trainhost::report
