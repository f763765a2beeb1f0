// Which optimizer updates a tensor, and the state that it keeps: the tensors of optimizer state as
// checkpoints contain them. Their offsets in a trainer's memory: core/step/state_layout.hpp.
#pragma once
#include <cstdint>
#include <vector>

#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost {

/// Elements of an 8-bit moment that share a scale, and the smallest tensor with 8-bit moments: bitsandbytes'.
inline constexpr std::uint64_t kMomentBlock = 256, kSmallest8bitTensor = 4096;

/// Number of blocks of a tensor with n elements; the last one may be smaller.
constexpr std::uint64_t moment_blocks(std::uint64_t n) { return (n + kMomentBlock - 1) / kMomentBlock; }

/// The optimizer of one tensor in a run with optimizer `o`. Muon is for matrices of layers, adapters
/// included; AdamW updates the others (embedding, head, norms, biases). 8-bit AdamW is for tensors of at
/// least 4,096 elements; AdamW updates the others.
Optimizer optimizer_of(Optimizer o, const TensorInfo& t);

/// Number of state files of a checkpoint: 2 for AdamW, 1 for Lion, 0 for SGD.
int moment_count(Optimizer o);

/// The tensors of moment 1 or 2 in a checkpoint, in file order; all are f32 there. Named and shaped as the
/// trained tensors, except:
///   adafactor   moment 1: row means [rows] of a matrix, and the second moment of a vector; moment 2: column
///               means [columns] of a matrix
///   adamw-8bit  of a tensor with 8-bit moments: NAME.absmax [blocks], the scales, and NAME, numbers of [-1,
///   1], which
///               times the scale of their block are the moments
/// Tensors whose optimizer has no such moment are left out.
std::vector<TensorInfo> state_tensors(const ModelSpec& m, const RunSpec& r, int moment);

/// Elements of the saved tensors and of all state tensors: a checkpoint's numbers.
std::uint64_t count_state_elements(const ModelSpec& m, const RunSpec& r);

}  // namespace trainhost
