// The modules of Transformer Engine 2.11 and of Megatron Core that a decoder layer of Megatron-LM consists
// of: what each keeps for the backward pass, and what it allocates. Tensors are [tokens, sequences,
// features].
//
// Gradients of matrices are added to the gradient buffer by the product itself, so they are no tensors. The
// engine gets a dummy tensor instead, of which Transformer Engine keeps one for each shape.
#pragma once
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/frameworks/tape.hpp"

namespace trainhost::frameworks {

class TransformerEngine {
 public:
  /// ranks: tensor-parallel. shares_tokens: sequence parallelism, each rank has its part of the tokens
  /// outside of the matrices.
  TransformerEngine(Tape& tape, std::int64_t ranks, bool shares_tokens)
      : t_(tape), ranks_(ranks), gathers_(ranks > 1 && shares_tokens) {}

  /// Of `tokens` tokens, how many a rank has outside of the matrices.
  std::int64_t own_tokens(std::int64_t tokens) const { return gathers_ ? tokens / ranks_ : tokens; }

  /// RMSNorm. Keeps its input and 1/rms in f32.
  Tensor norm(const Tensor& x, const Tensor& weight);
  /// LayerNormLinear, divided by columns. Keeps input, 1/rms, and the result of the norm: the rank's tokens
  /// only, which the backward pass gathers again.
  Tensor norm_linear(const Tensor& x, const Tensor& norm_weight, const Tensor& weight);
  /// Linear, divided by rows. Keeps its input.
  Tensor row_linear(const Tensor& x, const Tensor& weight);
  /// ColumnParallelLinear of Megatron Core, for the head. Gathered tokens are in a buffer that stays.
  Tensor head(const Tensor& x, const Tensor& weight);
  /// GroupedLinear: rows of x are those of several experts, whose matrices have the sizes of `weight`.
  Tensor grouped_linear(const Tensor& x, const Tensor& weight);
  /// Rows for each expert that a token is sent to, `rows` in all. Keeps the map of rows.
  Tensor permute(const Tensor& x, const Tensor& probabilities, std::int64_t rows);
  /// The sum of the rows of each token.
  Tensor unpermute(const Tensor& rows, const Shape& tokens);
  /// A copy in another order, or of other ranks.
  Tensor reordered(const Tensor& x, const char* name);
  /// Probabilities of the experts for each token, in the type of x.
  Tensor route(const Tensor& x, const Tensor& weight);
  /// Keys (nope + rope features of each head) and values of multi-latent attention.
  std::array<Tensor, 2> keys_and_values(const Tensor& up, const Tensor& rotated, const Shape& keys,
                                        const Shape& values);
  /// silu(first half) * second half. Keeps its input.
  Tensor swiglu(const Tensor& x);
  /// DotProductAttention by a fused kernel. exchange_heads: context parallelism in which each rank gets all
  /// tokens of a part of the heads (a2a); it keeps these, and its own result beside the returned one.
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool exchange_heads);
  /// All tokens of the embedding to the rank's.
  Tensor scatter_tokens(const Tensor& x);

  /// The loss of each token by the kernel of Transformer Engine, which overwrites the logits with their
  /// gradient; otherwise that of Megatron Core in f32.
  Tensor cross_entropy(const Tensor& logits, const Tensor& labels, bool in_place);

 private:
  std::vector<Tensor> exchanged(std::vector<Tensor> inputs, const char* name);
  Tensor all_tokens(const Tensor& own, const char* name);
  Tensor part_of_tokens(const Tensor& all, const char* name);
  Tensor new_workspace();
  void use_workspace();
  void use_grouped_workspaces();
  void add_dummy(const Tensor& weight);

  Tape& t_;
  std::int64_t ranks_;
  bool gathers_;
  Tensor workspace_, gathered_;
  std::vector<Tensor> grouped_workspaces_;
  std::vector<std::pair<std::array<std::int64_t, 2>, Tensor>> dummies_;
};

}  // namespace trainhost::frameworks
