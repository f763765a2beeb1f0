// Cut Cross Entropy, which computes head and loss in one kernel, without logits: the function that its patch
// for transformers calls (fork of axolotl, June 2026). Other losses: liger.hpp, operators.hpp.
#pragma once
#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

/// Loss of hidden [B, S, H] in 16 bits with the head [V, H]. labels: [B, S], i64. soft_cap: logits are capped
/// with tanh.
Tensor cut_cross_entropy(Tape& t, const Tensor& hidden, const Tensor& head, const Tensor& labels,
                         bool soft_cap);

}  // namespace trainhost::frameworks
