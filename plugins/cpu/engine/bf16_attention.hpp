// Attention of heads that are stored in bf16 by bf16 instructions. Called by ops_attention.cpp.
#pragma once
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// True if the kernels of the run have attention in bf16 and its memory fits into a thread's workspace, which
/// depends on the shape only.
bool computes_attention_in_bf16(OpContext& ctx, const step::Op& op);
void bf16_attention(OpContext& ctx, const step::Op& op);
void bf16_attention_bwd(OpContext& ctx, const step::Op& op);

}  // namespace trainhost::cpu
