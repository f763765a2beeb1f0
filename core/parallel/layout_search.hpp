// Ranks every layout (combination of parallelism, recompute and offload) of a space by memory and time. Pure
// and single-threaded: callers search parts in threads and merge() the outcomes, which do not depend on the
// split. Pruning never changes the outcome: a group of layouts is skipped only if its lower bound of time
// exceeds the slowest of the `top` fastest layouts, and a point of the Pareto front is faster with no more
// memory than the group's lower bound.
#pragma once
#include <optional>
#include <vector>

#include "core/parallel/layout_space.hpp"
#include "core/parallel/step_time.hpp"

namespace trainhost::parallel {

struct SearchRequest {
  const model::Architecture* architecture = nullptr;
  SearchSpace space;
  Machine machine;
  std::uint64_t device_budget = 0, host_budget = UINT64_MAX;  // bytes per rank
  std::size_t top = 10;
  bool prune = true;  // false: evaluate every layout
};

struct FoundLayout {
  MicroBatchSettings micro;
  PipelineSettings pipeline;
  StateSettings state;
  std::uint64_t device_bytes = 0, host_bytes = 0;  // of the stage that needs most
  double step_seconds = 0;
  std::uint64_t index = 0;  // in the order of the space; breaks ties
  RunSpec run(const RunSpec& base) const;
};

struct SearchOutcome {
  std::uint64_t layouts = 0;           // in the space
  std::uint64_t evaluated = 0;         // not pruned
  std::uint64_t fitting = 0;           // of the evaluated ones
  std::vector<FoundLayout> best;       // fastest first; ties: least memory, then index
  std::vector<FoundLayout> pareto;     // least device memory first, each faster than the previous
  std::optional<FoundLayout> closest;  // if nothing fits: the least excess over the budgets
};

/// Searches part `part` of `parts` of the space. Throws usage_error for inference.
SearchOutcome search(const SearchRequest& q, std::size_t part = 0, std::size_t parts = 1);
SearchOutcome merge(std::vector<SearchOutcome> outcomes, const SearchRequest& q);

/// Excess over the device and host budgets in bytes; 0: it fits.
std::uint64_t excess_bytes(const FoundLayout& f, const SearchRequest& q);

}  // namespace trainhost::parallel
