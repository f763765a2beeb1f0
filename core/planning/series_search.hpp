// The mildest change of a series that makes a run fit. A series is the values of one setting, mildest first
// (propose_changes.hpp); values are planned until the first that fits is known, with as few plans as
// possible. Which series there are, and combinations of changes: suggest_changes.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/planning/plan_result.hpp"
#include "core/planning/propose_changes.hpp"
#include "core/planning/replan.hpp"

namespace trainhost::planning {

/// Settings that a combination begins with, and the text that describes them.
struct CombinationPrefix {
  Settings settings;
  std::string description;
};

/// `b` after `a`, with every key once: the value in `b` wins.
Settings merge_settings(const Settings& a, const Settings& b);

/// "KEY=VALUE" of each, as the arguments of --set.
std::vector<std::string> set_arguments(const Settings& settings);

/// `proof`: the estimate of the changed run; a change is never reported without one.
Change make_change(const Settings& settings, const CandidateChange& r, Price price, const Estimate& proof);

/// Ranks that a combination begins with: up to eight-way tensor parallelism, as far as the heads
/// divide, and as many pipeline stages as the layers allow.
struct CombinationRanks {
  std::uint32_t tensor = 1, pipeline = 1;  // 1: unchanged
};

/// Where to begin in a falling series: most series halve the size of the activations, again and again, and
/// more data ranks halve the states that ZeRO shards. Saves plans where it is right, and nothing else depends
/// on it.
struct FirstGuess {
  std::uint64_t states = 0, others = 0, budget = 0;  // bytes of the run as it is
  std::uint64_t gaps = 0;                            // of the allocator, which become smaller too
  bool counts_missing = false;
  std::uint64_t gradients = 0, weights = 0;  // of `states`
  std::uint64_t needed = 0;                  // on a device at least, so without gaps
  bool alike_on_devices = false;             // the device decides no setting of the run

  /// Bytes of the states that ZeRO stage `zero` does not shard. 1 shards the optimizer state with the master
  /// weights, 2 the gradients too, 3 the weights too.
  std::uint64_t replicated(std::uint32_t zero) const {
    return (zero < 3 ? weights : 0) + (zero < 2 ? gradients : 0);
  }
  /// Whether what every change keeps, or does not shard, exceeds the budget alone. FSDP gathers weights in
  /// the compute type, which may have half of the bytes.
  bool never_fits(const CandidateSeries& series) const {
    return counts_missing &&
           (series.keeps > budget || (series.shards != 0 && replicated(series.shards) / 2 > budget));
  }
  /// Bytes beyond the budget at least; 0 for a placed program and where ranks are added.
  std::uint64_t missing() const {
    const std::uint64_t all = states + others + gaps;
    return counts_missing && all > budget ? all - budget : 0;
  }
  /// Bytes without which the run fits no device: what it needs here, less a sixteenth, because some temporary
  /// tensors of kernels depend on the device.
  std::uint64_t least() const { return counts_missing && alike_on_devices ? needed / 16 * 15 : 0; }
  /// The same for the run with the prefix, which has recomputation and perhaps more ranks. `planned`: its
  /// bytes, if it was planned; otherwise its states exceed the budget.
  FirstGuess with_prefix(const std::optional<Estimate>& planned, const CombinationRanks& ranks) const;
  /// Index of the mildest change that should fit; none: the last.
  std::optional<std::size_t> index(const CandidateSeries& series) const;
};

/// The first change of the series that fits; nullopt where it is one of `known`, which fit without the
/// prefix. Bisects a falling series, after planning one change that should fit, the one beside it, and the
/// last change: if that does not fit, none does.
std::optional<Change> mildest_that_fits(const CandidateSeries& family, const CombinationPrefix& prefix,
                                        const std::vector<Change>& known, Replanner& replan,
                                        const FirstGuess& guess);

}  // namespace trainhost::planning
