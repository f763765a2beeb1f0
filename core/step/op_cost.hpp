// FLOPs and minimum memory traffic of an operation, computed from its shapes. Trainers report them with the
// measured time, which gives the achieved rates.
#pragma once
#include <cstdint>

#include "core/step/program.hpp"

namespace trainhost::step {

struct OpCost {
  std::uint64_t flops = 0;       // of matrix products only, 2*m*n*k each
  std::uint64_t bytes_read = 0;  // every operand once, except scratch (with logits), assumed to stay in cache
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes() const { return bytes_read + bytes_written; }
  OpCost& operator+=(const OpCost& o);
};

/// Attention counts the (query, key) pairs inside its mask: two products forward, five backward, because the
/// scores are recomputed. kAttentionStep is counted with a full cache. Embedding tables count at most the M
/// rows that are indexed. `first_micro`: gradients with kFirstWrite are overwritten, not read. Errors:
/// usage_error if a count exceeds 63 bits.
OpCost op_cost(const Program& p, const Op& op, bool first_micro);

/// (query, key) pairs of one sequence of S tokens under the causal mask and the layer's sliding window.
std::uint64_t attention_pairs(const Program& p, std::int32_t layer);

}  // namespace trainhost::step
