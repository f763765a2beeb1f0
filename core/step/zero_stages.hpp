// ZeRO 2 and 3 as a transform of the program that has whole gradients and weights on every rank.
//
//   ZeRO 2  a rank keeps its shard of the sum of every gradient. The whole gradient of a parameter is a
//   buffer
//           of one pass over a layer; its sum over the ranks is started after the pass (reduce_scatter),
//           waited for after the next one, and the shard is added to the sum of the micro-batches (add_grad).
//   ZeRO 3  the same, and a rank keeps its shard of every weight, frozen ones included. The weights of a
//   layer
//           are gathered into buffers of one pass over it (all_gather); this is started before the pass over
//           the layer before it, so two layers are in memory. Every section does so, also evaluation and
//           generation. Matrices in NF4 are not divided: they have half a byte per element, and are
//           dequantized a matrix at a time.
//
// Adds no kind of operation: all_gather gets the shard as another operand, add_grad adds a part of its
// operand. Programs of all ranks have the same collectives in the same order.
#pragma once
#include "core/step/program.hpp"

namespace trainhost::step {

/// Does nothing for ZeRO 0 and 1. `scratch`: the buffer that all collectives share. To be applied after
/// recomputation, since recomputed operations use the weights that the backward pass gathers.
void apply_zero_stage(Program& p, BufferId scratch);

}  // namespace trainhost::step
