// Functions of Liger 0.8 for autograd, as CUDA runs them: each is one kernel of Triton that writes into
// tensors which exist. Eager operators: operators.hpp.
#pragma once
#include <utility>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

/// LigerRMSNormFunction. in_place: the gradient of x is written over that of the result; not in Gemma 2 and
/// 3, where a sum with the residual uses that gradient too.
Tensor liger_rms_norm(Tape& t, const Tensor& x, const Tensor& weight, bool in_place);

/// LigerRopeFunction rotates q and k [B, heads, S, D] in place, and copies them first where a token's heads
/// are not contiguous.
std::pair<Tensor, Tensor> liger_rope(Tape& t, const Tensor& q, const Tensor& k, const Tensor& cos,
                                     const Tensor& sin);

/// LigerSiLUMulFunction: silu(gate) * up, and LigerGELUMulFunction. Gradients are written over gate and up.
Tensor liger_swiglu(Tape& t, const Tensor& gate, const Tensor& up);

/// LigerFusedLinearCrossEntropyFunction: head and loss of hidden [rows, H]. The logits of a chunk of rows
/// exist at a time. The gradients are computed in the forward pass, and kept.
Tensor liger_loss(Tape& t, const Tensor& hidden, const Tensor& head);

/// LigerExperts of Mixtral, as one function. x: [N, H]; up: [E, 2I, H]; down: [E, H, I]; experts, weights:
/// [N, k].
Tensor liger_experts(Tape& t, const Tensor& x, const Tensor& up, const Tensor& down, const Tensor& experts,
                     const Tensor& weights);

}  // namespace trainhost::frameworks
