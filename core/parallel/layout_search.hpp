// Ranks every layout of a space by memory and time. Pure and single-threaded: a caller hands parts of the
// space to as many threads as it has and merges the answers, which do not depend on how the space was cut.
// Pruning never loses an answer: a group of layouts is left out only where a lower bound of its time is above
// the slowest of `top` layouts already found, and a point already on the front beats it with less memory than
// any of the group can need.
#pragma once
#include <optional>
#include <vector>

#include "core/parallel/layout_space.hpp"
#include "core/parallel/step_time.hpp"

namespace trainhost::parallel {

struct Question {
  const model::Architecture* architecture = nullptr;
  Job job;
  Machine machine;
  std::uint64_t device_budget = 0, host_budget = UINT64_MAX;  // bytes a rank
  std::size_t top = 10;
  bool prune = true;  // false: look at every layout
};

struct Found {
  Shape shape;
  Depth depth;
  Keep keep;
  std::uint64_t device_bytes = 0, host_bytes = 0;  // of the worst stage
  double step_seconds = 0;
  std::uint64_t place = 0;  // in the order of the space: breaks ties
  RunSpec run(const RunSpec& base) const;
};

struct Answer {
  std::uint64_t layouts = 0, evaluated = 0,
                fitting = 0;     // of the space; looked at; of those looked at, fitting
  std::vector<Found> best;       // fastest first; then least memory, then earliest in the space
  std::vector<Found> pareto;     // least device memory first, each faster than all before it
  std::optional<Found> closest;  // where nothing fits: the least over the budgets
};

/// Part `part` of `parts` of the space. Throws usage_error where the run is none that search can vary
/// (inference).
Answer search(const Question& q, std::size_t part = 0, std::size_t parts = 1);
Answer merge(std::vector<Answer> answers, const Question& q);

/// Bytes over the budgets, device and host together; 0: it fits.
std::uint64_t misses_by(const Found& f, const Question& q);

}  // namespace trainhost::parallel
