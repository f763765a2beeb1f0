// The operations of a step that the host runs, on all its threads. Work is cut by shape alone, sums are added
// up in order: the same bits whatever the number of threads. Pointers into page-locked or pageable memory;
// nothing here knows CUDA.
#pragma once
#include <cstdint>
#include <span>

#include "core/step/program.hpp"
#include "plugins/cuda/host/thread_pool.hpp"

namespace trainhost::cuda::host {

/// Addresses of the operands of one operation, by input slot; null where one is absent.
struct Operands {
  void* in[step::kMaxOperands] = {};
  void* x = nullptr;  // output of kEmbed; every other operation here changes one of its inputs
  template <class T>
  T* get(step::In k) const {
    return static_cast<T*>(in[k.slot]);
  }
};

/// What a step says: see StepState and the scalars of the program.
struct Step {
  const std::int32_t *ids = nullptr, *targets = nullptr;  // of the rows in hand
  std::uint64_t first = 0, rows = 0;                      // rows [first, first + rows) of the operands
  bool first_micro = true;
};

/// kEmbed, kEmbedBwd, kCrossEntropy, kAddGrad. Loss sums go to the scalars operand.
void run(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at, const Step& step);

/// scalars[kNorm2] += the squares of the operation's gradient.
void run_squares(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at);

/// kAdamW, kSgd, kSgdMomentum by the constants in the scalars operand; nothing where kApplied is 0.
void run_update(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at);

}  // namespace trainhost::cuda::host
