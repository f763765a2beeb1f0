// Part of Executor: the collective operations of a run on several ranks. Operations that start one are queued
// on a stream of their own, behind what the kernel stream has queued so far; a kWait makes the kernel stream
// wait for the event that was recorded behind the operation. NCCL needs no scratch: that of the program is
// not used.
#include <cassert>
#include <chrono>

#include "core/step/operands.hpp"
#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::cuda {

using step::OpKind;
using namespace step::operand;

/// Gradients travel once per update, when the last micro-batch has completed them. What the ranks agree on
/// before a micro-batch is exchanged by the host (agree_to_go_on()).
bool Executor::skips(const step::Op& op) const {
  return ((op.flags & step::kLastMicro) && ctx_.step.micro + 1 < program_.run.accumulate) ||
         (op.kind == OpKind::kSumScalars && op.phase != kUpdate);
}

/// `counted` becomes its sum over the DP ranks; false if one of them is cancelled, as then all stop. The
/// device goes on computing meanwhile.
bool Executor::agree_to_go_on(std::uint64_t& counted, const std::function<bool()>& cancelled) {
  const auto begin = std::chrono::steady_clock::now();
  double values[2] = {static_cast<double>(counted), cancelled && cancelled() ? 1.0 : 0.0};
  std::vector<double> received(2 * std::size_t{ranks_->ranks()});
  Collective c;
  c.kind = CollectiveKind::kAllReduce, c.dtype = DType::kF64;
  c.data = values, c.count = 2, c.piece = shard_elements(2, ranks_->ranks());
  c.scratch = received.data(), c.scratch_bytes = received.size() * sizeof(double);
  traffic_.bytes += executor::bytes_sent(c, ranks_->rank(), ranks_->ranks());
  ranks_->host().run(c);
  traffic_.waited_ns += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count());
  counted = static_cast<std::uint64_t>(values[0]) / program_.run.parallel.tensor;  // each counts the same
  return values[1] == 0.0;
}

void Executor::start_collectives(std::span<const step::Op> ops) {
  assert(ranks_);
  const cudaEvent_t ready = events_.next();
  check(cudaEventRecord(ready, kernels_), "recording an event");
  check(cudaStreamWaitEvent(*communication_, ready, 0), "ordering queues");
  std::vector<DeviceCollective> group;
  for (const step::Op& op : ops) {
    const step::BufferId buffer = op[all_reduce::kBuffer];
    DeviceCollective c{executor::collective_of(program_, op, ctx_.get<void>(buffer)), nullptr};
    // The shard of a weight is sent from where it is; a rank without a shard has no piece.
    if (op.kind == OpKind::kAllGather && op.ins > all_gather::kShard.slot &&
        program_[op[all_gather::kShard]].bytes() > 0)
      c.own = ctx_.get<void>(op[all_gather::kShard]);
    traffic_.bytes += executor::bytes_sent(c, ranks_->rank(), ranks_->ranks());
    group.push_back(c);
  }
  ranks_->queue(group, *communication_);
  const cudaEvent_t done = events_.next();
  check(cudaEventRecord(done, *communication_), "recording an event");
  for (const step::Op& op : ops) collective_done_[op[all_reduce::kBuffer]] = done;
}

/// The wait is timed as exposed communication.
void Executor::wait_for_collectives(std::span<const step::Op> ops) {
  if (in_update_) counters_.mark(kernels_);
  cudaEvent_t last = nullptr;
  for (const step::Op& op : ops) {
    const cudaEvent_t done = collective_done_[op[wait::kBuffer]];
    assert(done && "a collective was started on the buffer");
    if (done != last) check(cudaStreamWaitEvent(kernels_, done, 0), "ordering queues");
    last = done;
  }
  if (in_update_) counters_.mark(kernels_);
}

/// Loss and squared norm of the update, on the device.
void Executor::sum_scalars(const step::Op& op) {
  assert(op.phase == kUpdate);
  start_collectives({&op, 1});
  step::Op until = op;
  until[wait::kBuffer] = op[all_reduce::kBuffer];
  wait_for_collectives({&until, 1});
}

}  // namespace trainhost::cuda
