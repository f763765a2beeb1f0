// Input and result of one optimizer update, shared by walker.hpp and trainers with a loop of their own
// (plugins/cuda/engine).
#pragma once
#include <cstdint>

namespace trainhost::executor {

struct UpdateInput {
  const std::int32_t *tokens, *targets;  // [accumulate * micro_batch * seq] each
  double lr;
  std::uint64_t step_index;
};
struct UpdateResult {
  double loss = 0.0, grad_norm = 0.0;
  std::uint64_t counted = 0;
};
enum class Outcome { kDone, kCancelled, kNonFinite };

}  // namespace trainhost::executor
