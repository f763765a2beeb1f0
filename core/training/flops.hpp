// Arithmetic of one trained token, for MFU: six operations a matrix parameter, plus causal attention.
#pragma once
#include "core/model/model_spec.hpp"

namespace trainhost::training {

/// Floating-point operations a token of one training step: 6 * (matrix parameters, head included once) +
/// attention. Attention forward is 2 products of S/2 keys on average over q_width columns, 2 flop each;
/// backward twice that: 6 * L * S * A * D in all. Recomputation is not counted: MFU is useful work. Source:
/// PaLM, appendix B, causal half.
double train_flops_per_token(const ModelSpec& m, std::uint64_t seq_len);

}  // namespace trainhost::training
