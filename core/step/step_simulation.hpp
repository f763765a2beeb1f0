// Predicts the time of a step on several data- and tensor-parallel ranks by simulating the step program of
// one of them: its operations on one lane, its collective operations on another or two, as the trainers and
// the communicators execute them. All ranks do the same work, so the others are always as far as this one.
// Rates are measured once per machine and kernel set (tools/bench/README.md), or those of a device preset
// (core/planning/simulate_layout.hpp).
#pragma once
#include <array>

#include "core/step/program.hpp"

namespace trainhost::step {

/// Seconds of an operation: the larger of per_flop * FLOPs and per_byte * bytes (op_cost.hpp).
struct OpRate {
  double per_flop = 0, per_byte = 0;
};

/// The ranks of a group: latency, and seconds of a core per byte that a rank receives, of a gathered part and
/// of a part that is added to others.
struct LinkRates {
  double latency_s = 0;             // of an all-gather, of each round of a reduction
  double all_reduce_latency_s = 0;  // of an all-reduce in one round
  double gather_per_byte = 0, reduce_per_byte = 0;
  bool rounds = true;      // a reduction takes as many rounds as its parts fill the scratch
  bool coalesces = false;  // operations of a kind that are started one directly after another share a latency
};

struct StepRates {
  std::array<OpRate, static_cast<std::size_t>(OpKind::kCount_)> kinds{};
  double between_s = 0;    // between two operations
  LinkRates data, tensor;  // among the DP ranks, with which scalars are summed too; among the TP ranks
  // Collectives among TP ranks do not wait for those among DP ranks: each group has a lane and links of its
  // own.
  bool lane_per_group = false;
  // Cores for the lanes of a rank. With as many as lanes each has its own. With 1 they share it while several
  // have work; with less other ranks use it too.
  double cores = 2;
};

struct SimulatedStep {
  double seconds = 0;
  double compute_s = 0;        // of operations, if each had a core of its own
  double communication_s = 0;  // of collective operations, likewise
  double waited_s = 0;         // the compute lane has no work
  // Parts of compute_s: arithmetic, memory traffic beyond it, recomputation, the update section. Parts of
  // waited_s: for TP ranks, for DP ranks.
  double arithmetic_s = 0, traffic_s = 0, recompute_s = 0, update_s = 0, tensor_s = 0, data_s = 0;
  std::uint64_t bytes = 0;  // that the rank receives; on average each rank sends as many
};

/// One step: `accumulate` times the micro section, then the update. Starting a collective operation puts it
/// behind the earlier ones of its lane; kWait, and kSumScalars itself, wait until it is complete.
/// Micro-batches after the third one take as long as the third, except the last.
SimulatedStep simulate_step(const Program& p, const StepRates& rates);

}  // namespace trainhost::step
