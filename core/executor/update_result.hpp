// What one optimizer update is given and what comes of it: the words that walker.hpp and a trainer with a
// loop of its own (plugins/cuda/engine) share.
#pragma once
#include <cstdint>

namespace trainhost::executor {

struct UpdateInput {
  const std::int32_t *tokens, *targets;  // accumulate * micro_batch * seq each
  double lr;
  std::uint64_t step_index;
};
struct UpdateResult {
  double loss = 0.0, grad_norm = 0.0;
  std::uint64_t counted = 0;
};
enum class Outcome { kDone, kCancelled, kNonFinite };

}  // namespace trainhost::executor
