// Kernels that torch.compile makes of several operators: only inputs and results of products of matrices, and
// rows of statistics, exist in memory. Eager operators: operators.hpp.
#pragma once
#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

/// A function of the elements of x, in another shape of the same or a larger size; its gradient needs x no
/// more. The rotation of q; the rotation of k, and v, for each query head.
Tensor fused_map(Tape& t, const Tensor& x, const Shape& shape);
/// silu(gate) * up.
Tensor fused_swiglu(Tape& t, const Tensor& gate, const Tensor& up);
/// Cross-entropy of logits in their own type: keeps the logits and two f32 values per row.
Tensor fused_cross_entropy(Tape& t, const Tensor& logits, const Tensor& targets);

}  // namespace trainhost::frameworks
