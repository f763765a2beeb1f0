// Predicts the time of a step on several data-parallel ranks by simulating the step program of one of them:
// its operations on one lane, its collective operations on another, as the trainers and plugins/mpi execute
// them. All ranks do the same work, so the others are always as far as this one. Rates are measured once per
// machine and kernel set (tools/bench/README.md).
#pragma once
#include <array>

#include "core/step/program.hpp"

namespace trainhost::step {

/// Seconds of an operation are per_flop * FLOPs + per_byte * bytes (op_cost.hpp).
struct OpRate {
  double per_flop = 0, per_byte = 0;
};

struct StepRates {
  std::array<OpRate, static_cast<std::size_t>(OpKind::kCount_)> kinds{};
  double between_s = 0;  // between two operations
  // A message between two ranks: seconds until it begins to arrive, and of a core per byte that a rank
  // receives: of a gathered part, and of a part that is added to others.
  double latency_s = 0, gather_per_byte = 0, reduce_per_byte = 0;
  // Cores for the two lanes of a rank. With 2 each lane has its own. With 1 they share it while both have
  // work; with less other ranks use it too.
  double cores = 2;
};

struct SimulatedStep {
  double seconds = 0;
  double compute_s = 0;        // of operations, if each had a core of its own
  double communication_s = 0;  // of collective operations, likewise
  double waited_s = 0;         // the compute lane has no work
  std::uint64_t bytes = 0;     // that the rank receives; on average each rank sends as many
};

/// One step: `accumulate` times the micro section, then the update. Starting a collective operation puts it
/// behind the earlier ones; kWait, and kSumScalars itself, wait until it is complete.
SimulatedStep simulate_step(const Program& p, const StepRates& rates);

}  // namespace trainhost::step
