// Part of Executor: the update section of a step. Sums of squares of all gradients, on the device and on the
// host; one gradient norm and one decision whether the update is applied; then the weights. The device
// decides (finish_norm): no weight is changed before the decision is made, and the optimizer kernels read it
// from device memory, so the host need not wait in the resident mode.
#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "core/step/operands.hpp"
#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::cuda {

using step::OpKind;
using step::SectionKind;

void Executor::run_update_section() {
  const step::Section s = program_.section(SectionKind::kUpdate);
  const std::vector<step::Op>& ops = program_.ops;
  std::uint32_t i = s.begin;
  const step::Op* squares = nullptr;  // a kGradSquares operation of the device

  // 1. Squares of the host's gradients, in the calling thread.
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

  // 2. Squares of the device's gradients; consecutive operations are queued together. With several ranks
  // the sums of gradients over the ranks come first.
  const std::uint32_t sums = i;
  while (i < s.end && ops[i].kind != OpKind::kSumScalars && executor::RankOperations::contains(ops[i].kind))
    ++i;
  queue_range(sums, i);
  for (; i < s.end && ops[i].kind == OpKind::kGradSquares; ++i) {
    if (step::runs_on_host(program_, ops[i])) continue;
    std::uint32_t end = i + 1;
    while (end < s.end && ops[end].kind == OpKind::kGradSquares && !step::runs_on_host(program_, ops[end]))
      ++end;
    assert(!squares);  // one group only: its first launch overwrites the partial sums
    squares = &ops[i];
    queue_range(i, end);
    i = end - 1;
  }

  // 3. The host's sum of squares, and its loss if it computes it, to the device's scalars; then norm, clip
  // factor and kApplied there. kernels_ is in order, so finish_norm reads the copied values.
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
  if (i < s.end && ops[i].kind == OpKind::kSumScalars) {
    // The partial sums of this rank are in kNorm2 now; norm and decision follow from the sum of all ranks.
    queue_range(i, i + 1), ++i;
    queue_finish_norm(ctx_, nullptr);
  }
  inputs_.fetch_scalars(kernels_);
  cudaEvent_t decided = nullptr;
  if (host_scalars_ != step::kNoBuffer) {
    decided = events_.next();
    check(cudaEventRecord(decided, kernels_), "recording an event");
  }

  // 4. Weights of the device. From here on a failure leaves some weights old and some new.
  half_updated_ = true;
  // Muon of the host's weights has its products on the device, in the order of the program.
  const bool muon_in_parts =
      decided && std::any_of(ops.begin() + i, ops.begin() + s.end,
                             [](const step::Op& o) { return o.kind == OpKind::kMuonOrthogonalise; });
  for (std::uint32_t k = i; k < s.end && !muon_in_parts; ++k)
    if (!step::runs_on_host(program_, ops[k])) {
      std::uint32_t end = k + 1;
      while (end < s.end && ops[end].kind == ops[k].kind && !step::runs_on_host(program_, ops[end])) ++end;
      queue_range(k, end);
      k = end - 1;
    }
  if (!decided) return;

  // 5. Weights of the host, with the clip factor and the decision from the device.
  counters_.mark(kernels_);
  check(cudaEventSynchronize(decided), "waiting for the gradient norm");
  auto* mine = arenas_.get<double>(host_scalars_);
  for (step::Scalar which : {step::kClipFactor, step::kApplied}) mine[which] = inputs_.back()[which];
  if (muon_in_parts)
    run_updates_in_order({s.kind, i, s.end});
  else
    run_host_updates({s.kind, i, s.end});
  counters_.mark(kernels_);
}

void Executor::run_host_update(const step::Op& op) {
  host::Operands at;
  for (std::size_t o = 0; o < op.ins; ++o) at.in[o] = ctx_.get<void>(op.in[o]);
  if (op.kind == OpKind::kMuonDirection) at.x = ctx_.get<void>(op[step::operand::muon_direction::kX]);
  host::run_update(pool_, program_, op, at);
}

void Executor::run_host_updates(const step::Section& s) {
  for (std::uint32_t k = s.begin; k < s.end; ++k)
    if (step::runs_on_host(program_, program_.ops[k])) run_host_update(program_.ops[k]);
}

/// Operations of the host run in the calling thread, those of the device are queued. A kHold stands where the
/// host needs what was copied to it; no other operation of the host here uses what the device changes.
void Executor::run_updates_in_order(const step::Section& s) {
  std::vector<std::pair<step::BufferId, cudaEvent_t>> arriving;  // by buffer of the host
  for (std::uint32_t k = s.begin; k < s.end; ++k) {
    const step::Op& op = program_.ops[k];
    if (op.kind == OpKind::kHold) {
      for (const auto& [buffer, event] : arriving)
        if (buffer == op[step::operand::hold::kSecond])
          check(cudaEventSynchronize(event), "waiting for an orthogonalised direction");
      continue;
    }
    if (step::runs_on_host(program_, op)) {
      run_host_update(op);
      continue;
    }
    queue_range(k, k + 1);
    if (op.kind != OpKind::kCopy) continue;
    const step::BufferId to = op[step::operand::copy::kTo];
    if (program_[to].tier == Tier::kDevice) continue;
    arriving.emplace_back(to, events_.next());
    check(cudaEventRecord(arriving.back().second, stream_of(kDown)), "recording an event");
  }
}

}  // namespace trainhost::cuda
