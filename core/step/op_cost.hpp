// What an operation costs, from its shapes alone: arithmetic and least memory traffic. Trainers report it
// beside the time they measured; dividing gives the achieved rates. Pure.
#pragma once
#include <cstdint>

#include "core/step/program.hpp"

namespace trainhost::step {

struct OpCost {
  std::uint64_t flops =
      0;  // of matrix products alone, 2*m*n*k each: norms, softmax and optimizers count as none
  std::uint64_t bytes_read =
      0;  // every operand once; scratch, logits included, is meant to stay in the caches
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes() const { return bytes_read + bytes_written; }
  OpCost& operator+=(const OpCost& o);
};

/// Attention counts the pairs of query and key that its mask leaves: two products forward, five backward (the
/// scores are made again from what is kept). kAttentionStep is counted at a full cache. Operands that are
/// indexed by token (embedding tables) count the rows that M tokens touch at most. `first_micro`: the
/// gradients with kFirstWrite are overwritten, not read. Throws usage_error where a count leaves 63 bits.
OpCost op_cost(const Program& p, const Op& op, bool first_micro);

/// Pairs of query and key in one sequence of S tokens, sliding window and layer regarded.
std::uint64_t attention_pairs(const Program& p, std::int32_t layer);

}  // namespace trainhost::step
