// Recomputation (activation checkpointing) as a transform of the program that keeps everything. A policy
// states which buffers of the forward pass are dropped; how to recompute them follows from the program.
#pragma once
#include <functional>

#include "core/step/program.hpp"

namespace trainhost::step {

struct RecomputePolicy {
  /// True if the buffer is dropped after its last use in the forward pass. Null: nothing is dropped. Outputs
  /// of an operation that changes a kept buffer in place are kept in any case: running it twice would be
  /// wrong.
  std::function<bool(const Buffer&)> dropped;
  /// True if the buffer is recomputed a second time rather than kept between two uses in the backward pass.
  std::function<bool(const Buffer&)> cheap;
};

/// The policy of a run. Per layer: none keeps everything; selective drops the buffers that are recomputed
/// without a matrix product (norm outputs, SwiGLU product); mlp also drops gate and up, the largest buffer;
/// full keeps only the input of the layer.
RecomputePolicy recompute_policy(const RunSpec& run, const TrainerTraits& traits = {});

/// Inserts clones of the forward operations that wrote dropped buffers into the backward pass of the micro
/// section, directly before the first use. Clones have the flag kRecomputed and phase backward, write buffers
/// of copy kRecomputedCopy, and are used by all later operations. Values do not change.
void apply_recompute(Program& p, const RecomputePolicy& policy);

}  // namespace trainhost::step
