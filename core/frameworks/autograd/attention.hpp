// Attention as transformers calls it: eager, scaled_dot_product_attention with the kernel that CUDA
// takes, and the package flash-attn. Rotation and projections belong to the models. The other operators:
// operators.hpp.
#pragma once
#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

struct AttentionInputs {
  Tensor q, k, v;                // [B, heads, S, D]; k and v with their own number of heads
  Tensor mask;                   // [B, 1, S, S], or none
  std::int64_t groups = 1;       // query heads per key head
  bool soft_cap = false;         // eager only
  bool repeats_keys = false;     // keys and values are copied for each query head, as for xformers
  bool copies_inputs = false;    // q, k and v are made contiguous; SDPA only
  bool f32_softmax = true;       // GPT-2 computes in the type of its input
  bool own_value_width = false;  // v has another width than q and k, which the flash kernel does not know
  bool recomputed = false;       // also where a region keeps its products; flash only
  double dropout = 0;
  std::int64_t context = 1;  // ranks of ring attention, which have equal parts of the tokens; flash only
};

struct AttentionOutputs {
  Tensor output;   // [B, S, heads, D]
  Tensor weights;  // of eager attention
};

/// repeat_kv() of transformers: [B, K, S, D] to [B, K * groups, S, D], with a copy.
Tensor repeat_kv(Tape& t, const Tensor& x, std::int64_t groups);
AttentionOutputs eager_attention(Tape& t, const AttentionInputs& in);
AttentionOutputs sdpa_attention(Tape& t, const AttentionInputs& in);
/// Causal masks and windows are arguments of its kernel, which reads grouped heads as they are.
AttentionOutputs flash_attention_2(Tape& t, const AttentionInputs& in);

}  // namespace trainhost::frameworks
