// Part of Executor: where the first value of a failed update that is not finite comes from. Queues the
// micro-batches again, waits after every operation, and reads its outputs through the staging buffer.
// Slow (all activations and gradients cross PCIe), but only a failed update pays for it. No weight changes.
#include <algorithm>

#include "core/executor/nonfinite.hpp"
#include "core/step/buffer_names.hpp"
#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::cuda {

using step::OpKind;

bool Executor::is_finite(step::BufferId b) {
  const step::Buffer& x = program_[b];
  const std::uint64_t elements = x.rows * x.cols, size = size_of(x.dtype);
  const auto* from = ctx_.get<std::byte>(b);
  if (x.tier != Tier::kDevice) return executor::first_nonfinite(x.dtype, from, elements) == elements;
  const step::BufferId staging = program_.find(step::role::kStaging);
  const std::uint64_t piece = program_[staging].bytes() / size;
  for (std::uint64_t first = 0; first < elements; first += piece) {
    const std::uint64_t n = std::min(piece, elements - first);
    check(
        cudaMemcpyAsync(arenas_.at(staging), from + first * size, n * size, cudaMemcpyDeviceToHost, kernels_),
        "fetching " + x.name());
    kernels_.wait_for_all();
    if (executor::first_nonfinite(x.dtype, arenas_.at(staging), n) < n) return false;
  }
  return true;
}

std::string Executor::find_nonfinite(const UpdateInput& in, const std::function<bool()>& cancelled) {
  Scope scope(*this);
  gradients_complete_ = false;
  set_inputs(in, std::max<std::uint64_t>(1, counted_targets(in.targets, program_.run.tokens_per_step())));
  inputs_.send_scalars(kernels_);
  // The ranks look for it alone, and need nothing of what they would send but the weights of ZeRO 3 and the
  // sums of TP ranks. Those come from all ranks, so that none of them may end before the others.
  const bool together = ranks_ && divides_weights(program_.run.parallel);
  std::string found;
  const step::Section s = program_.section(step::SectionKind::kMicro);
  for (std::uint32_t micro = 0; micro < program_.run.accumulate; ++micro) {
    ctx_.step = {program_.run.tokens_per_micro_batch(), micro, rings_ ? micro % 2 : 0, micro == 0, 0};
    inputs_.send(kernels_, micro, ctx_.step.rows, ctx_.step.instance);
    for (std::uint32_t i = s.begin, next = i; i < s.end; i = next) {
      if (!together && cancelled && cancelled()) return {};
      if (const step::Op& op = program_.ops[i]; executor::RankOperations::contains(op.kind)) {
        next = i + 1;
        if (!together || !executor::is_needed_to_compute(program_, op)) continue;
        queue_one({&op, 1});
        wait_for_all_queues();
        continue;
      }
      next = i + 1;
      if (!found.empty()) continue;
      next = queue_next(i, s.end);
      wait_for_all_queues();
      for (std::uint32_t k = i; k < next; ++k) {
        const step::Op& op = program_.ops[k];
        if (op.kind == OpKind::kCopy || op.kind == OpKind::kHold) continue;  // seen at its source
        for (step::BufferId b : op.outputs())
          if (found.empty() && !is_finite(b)) found = executor::describe_nonfinite(program_, op, b, micro);
      }
      if (!found.empty() && !together) return found;
    }
  }
  if (!found.empty()) return found;
  return ranks_ ? executor::kOnAnotherRank : executor::describe_not_repeated();
}

}  // namespace trainhost::cuda
