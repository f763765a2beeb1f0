// The update section of a step, on both sides: squares, one norm and one verdict, then the weights. Nothing
// is changed before the verdict is on its way to everybody.
#include <algorithm>

#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::cuda {

using step::OpKind;
using step::SectionKind;

/// Squares on both sides, one norm for all of them, then the weights. The device decides (finish_norm): what
/// the host has measured goes up, clip factor and verdict come back.
void Executor::update_section() {
  const step::Section s = program_.section(SectionKind::kUpdate);
  const std::vector<step::Op>& ops = program_.ops;
  std::uint32_t i = s.begin;
  const step::Op* squares = nullptr;
  if (host_scalars_ != step::kNoBuffer) {
    counters_.mark(kernels_);
    host_->wait_for_all();  // losses and gradients of the host are complete
    for (std::uint32_t k = s.begin; k < s.end; ++k)
      if (ops[k].kind == OpKind::kGradSquares && step::runs_on_host(program_, ops[k])) {
        host::Operands at;
        for (std::size_t o = 0; o < 2; ++o) at.in[o] = ctx_.get<void>(ops[k].in[o]);
        host::run_squares(pool_, program_, ops[k], at);
      }
  }
  for (; i < s.end && ops[i].kind == OpKind::kGradSquares; ++i) {
    if (step::runs_on_host(program_, ops[i])) continue;
    std::uint32_t end = i + 1;
    while (end < s.end && ops[end].kind == OpKind::kGradSquares && !step::runs_on_host(program_, ops[end]))
      ++end;
    squares = &ops[i];
    range(i, end);
    i = end - 1;
  }
  if (host_scalars_ != step::kNoBuffer) {
    const double* mine = arenas_.get<double>(host_scalars_);
    const bool host_loss = std::any_of(ops.begin(), ops.end(),
                                       [](const step::Op& o) { return o.kind == OpKind::kCrossEntropy; });
    for (step::Scalar which : {step::kNorm2, step::kLossSum})
      if (which == step::kNorm2 || host_loss)
        check(cudaMemcpyAsync(ctx_.scalar(which), mine + which, sizeof(double), cudaMemcpyHostToDevice,
                              kernels_),
              "sending the norm");
    counters_.mark(kernels_);
  }
  queue_finish_norm(ctx_, squares);
  inputs_.fetch_scalars(kernels_);
  cudaEvent_t verdict = nullptr;
  if (host_scalars_ != step::kNoBuffer) {
    verdict = events_.next();
    check(cudaEventRecord(verdict, kernels_), "recording an event");
  }
  half_updated_ = true;
  for (std::uint32_t k = i; k < s.end; ++k)
    if (!step::runs_on_host(program_, ops[k])) {
      std::uint32_t end = k + 1;
      while (end < s.end && ops[end].kind == ops[k].kind && !step::runs_on_host(program_, ops[end])) ++end;
      range(k, end);
      k = end - 1;
    }
  if (!verdict) return;
  counters_.mark(kernels_);
  check(cudaEventSynchronize(verdict), "waiting for the gradient norm");
  auto* mine = arenas_.get<double>(host_scalars_);
  for (step::Scalar which : {step::kClipFactor, step::kApplied}) mine[which] = inputs_.back()[which];
  host_updates({s.kind, i, s.end});
  counters_.mark(kernels_);
}

void Executor::host_updates(const step::Section& s) {
  for (std::uint32_t k = s.begin; k < s.end; ++k) {
    const step::Op& op = program_.ops[k];
    if (!step::runs_on_host(program_, op)) continue;
    host::Operands at;
    for (std::size_t o = 0; o < op.ins; ++o) at.in[o] = ctx_.get<void>(op.in[o]);
    host::run_update(pool_, program_, op, at);
  }
}

}  // namespace trainhost::cuda
