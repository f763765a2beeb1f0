// The loss of TRL 1.15 and newer (ChunkedLogProbFunction), which multiplies the head in tiles and keeps no
// logits. Other losses: cut_loss.hpp, liger.hpp, operators.hpp.
#pragma once
#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {

/// Loss of hidden [B, S, H] with the head [V, H]. Products are in `compute`: the type of autocast, or that of
/// hidden. labels: [B, S], i64; none of them is ignored. Gradients are summed in f32 and cast to the types of
/// hidden and head.
Tensor tiled_loss(Tape& t, const Tensor& hidden, const Tensor& head, const Tensor& labels, Element compute);

}  // namespace trainhost::frameworks
