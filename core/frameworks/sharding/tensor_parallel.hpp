// Tensor parallelism of torch.distributed with sequence parallelism: collectives between the region where
// each rank has a part of the tokens (dimension 1) and the region where it has a part of the features, and
// the loss of logits whose vocabulary is divided.
#pragma once
#include "core/frameworks/autograd/tape.hpp"

namespace trainhost::frameworks {

struct TokenExchange {
  std::int64_t ranks = 1;
  bool float8 = false;  // gathers what was cast to 8 bits
};

/// [B, S / ranks, H] to [B, S, H]. The collective gathers dimension 0, so the parts are then copied.
Tensor gather_tokens(Tape& t, const Tensor& x, const TokenExchange& e);
/// Sum over the ranks, [B, S, H] to [B, S / ranks, H], of a copy in which the parts of each rank are
/// contiguous.
Tensor scatter_tokens(Tape& t, const Tensor& x, const TokenExchange& e);
/// loss_parallel(): logits [rows, V / ranks] in f32.
Tensor parallel_cross_entropy(Tape& t, const Tensor& logits, const Tensor& targets);

}  // namespace trainhost::frameworks
