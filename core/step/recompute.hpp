// Recompute policies as a transform over the program that keeps everything. A policy only says which buffers
// of the forward pass are dropped; how to make them again is read off the program.
#pragma once
#include <functional>

#include "core/step/program.hpp"

namespace trainhost::step {

struct RecomputePolicy {
  /// Is this buffer of the forward pass given up after its last use there? Null: nothing is dropped. What
  /// cannot be made again is kept all the same: an operation that changes a kept buffer in place does not run
  /// twice.
  std::function<bool(const Buffer&)> dropped;
  /// Is it worth making again a second time rather than holding on to it between two uses in the backward
  /// pass?
  std::function<bool(const Buffer&)> cheap;
};

/// The policy of every layer of a run. none: keeps all. selective: drops what no matrix product is needed for
/// (norm outputs, the SwiGLU product). mlp: gate and up as well, the largest of all. full: keeps of the layer
/// its input alone.
RecomputePolicy recompute_policy(const RunSpec& run, const TrainerTraits& traits = {});

/// Inserts into the micro section's backward pass, right before the first use, clones of the forward
/// operations that make what was dropped (flag kRecomputed, phase backward), on buffers of copy kRemade;
/// later operations then use the clones. Values do not change: clones read what the originals read.
void apply_recompute(Program& p, const RecomputePolicy& policy);

/// What recomputation costs a micro-batch, in FLOPs: those of the matrix products that are made again (causal
/// attention counted by the half that is needed), and 32 for each element that anything else writes again,
/// which is bound by memory.
double recompute_cost(const Program& p);

}  // namespace trainhost::step
