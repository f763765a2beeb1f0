// Operations of a step that run on the host in the hybrid and streamed modes, on all threads of the pool.
// Work is divided by shape only and partial sums are added in order, so the bits do not depend on the number
// of threads. Operands are in page-locked or pageable memory. Makes no CUDA calls. The loops: host_loops.hpp.
#pragma once
#include <cstdint>
#include <span>

#include "core/step/program.hpp"
#include "plugins/cuda/host/thread_pool.hpp"

namespace trainhost::cuda::host {

/// Addresses of the operands of one operation, by input slot; null if an operand is absent.
struct Operands {
  void* in[step::kMaxOperands] = {};
  void* x = nullptr;  // output of kEmbed and kMuonDirection; other operations here change inputs in place
  template <class T>
  T* get(step::In k) const {
    return static_cast<T*>(in[k.slot]);
  }
};

/// The rows that an operation processes. Constants of the step are in the program's scalars.
struct Step {
  const std::int32_t *ids = nullptr, *targets = nullptr;  // of row `first` and the following
  std::uint64_t first = 0, rows = 0;                      // rows [first, first + rows) of the operands
  bool first_micro = true;
};

/// Runs kEmbed, kEmbedBwd, kCrossEntropy or kAddGrad. kCrossEntropy adds its loss to kLossSum of the scalars
/// operand.
void run(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at, const Step& step);

struct Range {
  std::uint64_t begin, end;
};
/// The i-th of n equal parts of [0, whole).
inline Range part(std::uint64_t whole, std::uint64_t i, std::uint64_t n) {
  return {whole * i / n, whole * (i + 1) / n};
}

/// Runs f(begin, count) on ranges of 2^18 elements: for operations without sums.
template <class F>
void over_elements(ThreadPool& pool, std::uint64_t n, F&& f) {
  constexpr std::uint64_t kElementsPerTask = 1 << 18;
  const auto tasks = static_cast<std::uint32_t>((n + kElementsPerTask - 1) / kElementsPerTask);
  pool.run(tasks, [&](std::uint32_t t) {
    const std::uint64_t begin = t * kElementsPerTask;
    f(begin, std::min(kElementsPerTask, n - begin));
  });
}

/// Runs kGradSquares: scalars[kNorm2] += sum of squares of the gradient.
void run_squares(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at);

/// Runs an optimizer with the constants in the scalars operand; changes nothing if kApplied is 0. Of Muon
/// kMuonDirection, whose output is Operands::x, and kMuon with a direction.
void run_update(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at);

}  // namespace trainhost::cuda::host
