// Part of Executor: the six queues of the hybrid and streamed modes. Every operation is queued in three
// steps: QueueOrder derives from its memory accesses which operations of other queues it must wait for; the
// waits are issued as cudaStreamWaitEvent; the operation is queued and an event is recorded behind it. The
// resident mode has one stream and skips all of this.
#include <algorithm>
#include <cassert>
#include <string_view>

#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::cuda {

using step::OpKind;
using namespace step::operand;

cudaStream_t Executor::stream_of(Queue q) const {
  switch (q) {
    case kUp:
      return *up_;
    case kDown:
      return *down_;
    case kHostWork:
      return *host_;
    case kEmbedding:
      return *embedding_;
    case kHidden:
      return *hidden_;
    default:
      return kernels_;
  }
}

/// The bytes of rows [first, first + rows) of a buffer, in the instance that this micro-batch uses.
Access Executor::access_rows(step::BufferId b, std::uint64_t first, std::uint64_t rows, bool write) const {
  const step::Buffer& x = program_[b];
  const std::uint64_t row = x.cols * size_of(x.dtype);
  const std::uint64_t at = plan_.offset[b] + (x.ring > 1 ? ctx_.step.instance : 0) * x.instance_stride();
  return {x.tier, at + first * row, at + std::min(first + rows, x.rows) * row, write};
}

/// All accesses of an operation: inputs in order, then outputs. Inputs that are changed in place and scratch
/// count as writes. The result is valid until the next call.
std::vector<Access>& Executor::accesses(const step::Op& op) {
  touched_.clear();
  const step::OpInfo& info = step::op_info(op.kind);
  const auto add = [&](step::BufferId b, bool write) {
    if (b != step::kNoBuffer && program_[b].storage != step::Storage::kExternal)
      touched_.push_back(access_rows(b, 0, program_[b].rows, write));
  };
  for (std::size_t k = 0; k < op.ins; ++k) add(op.in[k], (info.inout_mask | info.scratch_mask) >> k & 1);
  for (step::BufferId b : op.outputs()) add(b, true);
  return touched_;
}

/// An event that completes when operation `sequence` of queue q has finished. Copies and host operations have
/// an event each. An event of the kernel queue is recorded only when another queue waits for it; it then
/// covers all kernels queued so far, which may delay the waiting queue slightly but saves an event per
/// kernel.
cudaEvent_t Executor::event_covering(Queue q, std::uint64_t sequence) {
  assert(sequence >= 1 && sequence <= event_of_[q].size());
  if (q != kKernels) return event_of_[q][sequence - 1];
  if (kernel_event_sequence_ < sequence) {
    kernel_event_ = events_.next();
    check(cudaEventRecord(kernel_event_, kernels_), "recording an event");
    kernel_event_sequence_ = event_of_[kKernels].size();
  }
  return kernel_event_;
}

/// Queues the waits on the stream of q; those of the kernel queue are timed as exposed transfer time.
void Executor::issue_waits(Queue q, const QueueOrder::Waits& waits) {
  const bool any = std::any_of(waits.wait.begin(), waits.wait.end(), [](std::uint64_t s) { return s != 0; });
  if (!any) return;
  if (q == kKernels && in_update_) counters_.mark(kernels_);
  for (std::uint32_t r = 0; r < kQueues; ++r)
    if (waits.wait[r])
      check(cudaStreamWaitEvent(stream_of(q), event_covering(static_cast<Queue>(r), waits.wait[r]), 0),
            "ordering queues");
  if (q == kKernels && in_update_) counters_.mark(kernels_);
}

/// Registers an operation with these accesses and queues its waits. The caller then queues the operation on
/// the same stream and calls record_end() with the returned sequence number.
std::uint64_t Executor::wait_for_conflicts(Queue q, std::span<const Access> touched) {
  const QueueOrder::Waits waits = order_.add(q, touched);
  issue_waits(q, waits);
  event_of_[q].push_back(nullptr);
  assert(event_of_[q].size() == waits.sequence);
  return waits.sequence;
}

void Executor::record_end(Queue q, std::uint64_t sequence) {
  if (q == kKernels) return;  // see event_covering()
  const cudaEvent_t e = events_.next();
  check(cudaEventRecord(e, stream_of(q)), "recording an event");
  event_of_[q][sequence - 1] = e;
}

void Executor::queue_one(std::span<const step::Op> ops) {
  const step::Op& op = ops.front();
  if (op.kind == OpKind::kWait) return wait_for_collectives(ops);
  if (op.kind == OpKind::kSumScalars) return sum_scalars(op);
  if (executor::RankOperations::contains(op.kind)) return start_collectives(ops);
  if (resident()) return queue_ops(ctx_, ops);
  if (op.kind == OpKind::kHold) return;  // only extends lifetimes in the plan
  if (op.kind == OpKind::kCopy) return queue_copy(op, 0, program_[op[copy::kFrom]].rows);
  if (step::runs_on_host(program_, op)) return queue_host_op(op, 0, ctx_.step.rows);
  std::vector<Access> all;
  for (const step::Op& o : ops) {
    const std::vector<Access>& a = accesses(o);
    all.insert(all.end(), a.begin(), a.end());
  }
  const std::uint64_t sequence = wait_for_conflicts(kKernels, all);
  queue_ops(ctx_, ops);
  record_end(kKernels, sequence);
}

/// Queues rows [first, first + rows) of a copy. Of activations, no rows behind the tokens of the section are
/// copied; buffers whose rows are not tokens (parameters, gradients) are copied whole. A transfer is counted
/// once, when its first rows are queued.
void Executor::queue_copy(const step::Op& op, std::uint64_t first, std::uint64_t rows) {
  const step::Buffer &from = program_[op[copy::kFrom]], &to = program_[op[copy::kTo]];
  const bool upwards = to.tier == Tier::kDevice,
             whole = from.persistent || op.rows == 0 || from.rows != op.rows;
  if (!whole) rows = std::min(rows, ctx_.step.rows > first ? ctx_.step.rows - first : 0);
  const Access touched[] = {access_rows(op[copy::kFrom], first, rows, false),
                            access_rows(op[copy::kTo], first, rows, true)};
  // The hidden state of the next micro-batch does not wait for the gradients of the last one's logits.
  const Queue q = !upwards ? kDown : std::string_view(from.role) == step::role::kHidden ? kHidden : kUp;
  const std::uint64_t sequence = wait_for_conflicts(q, touched);
  const std::uint64_t row = from.cols * size_of(from.dtype);
  check(cudaMemcpyAsync(ctx_.get<std::byte>(op[copy::kTo]) + first * row,
                        ctx_.get<std::byte>(op[copy::kFrom]) + first * row, rows * row,
                        upwards ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream_of(q)),
        "queueing a copy of " + from.name());
  record_end(q, sequence);
  if (!in_update_) return;
  RunCounters::Transfers& t = op.flags & step::kActivationCopy ? counters_.activation
                              : op.flags & step::kSyncCopy     ? counters_.sync
                                                               : counters_.stream;
  if (first == 0)
    counters_.count(t, upwards, whole ? from.instance_bytes() : ctx_.step.rows * row, 1);
  else
    ++counters_.chunks;
}

/// Queues an operation of the host behind its waits. A thread of the CUDA driver runs it (cudaLaunchHostFunc)
/// and distributes the work over the thread pool.
void Executor::queue_host_op(const step::Op& op, std::uint64_t first, std::uint64_t rows) {
  std::vector<Access>& touched = accesses(op);
  if (op.kind == OpKind::kCrossEntropy) {
    // Only these rows of the logits, so that the pieces of the head do not wait for each other. The logits
    // are the first input and, changed in place, the first of two outputs.
    assert(op.outs == 2 && op[cross_entropy::kLogits] == op[cross_entropy::kDLogits]);
    touched.front() = access_rows(op[cross_entropy::kLogits], first, rows, true);
    touched[touched.size() - 2] = touched.front();
  }
  // The embedding of the next micro-batch, without which the device has nothing to do, does not wait for the
  // loss of the last one: the driver calls functions of other streams in between.
  const Queue q = op.kind == OpKind::kEmbed ? kEmbedding : kHostWork;
  const std::uint64_t sequence = wait_for_conflicts(q, touched);
  // Addresses are resolved now: ctx_.step describes another micro-batch when the callback runs.
  HostTask& t = host_tasks_->tasks.emplace_back();
  t.queue = host_tasks_.get(), t.op = &op;
  for (std::size_t k = 0; k < op.ins; ++k)
    if (op.in[k] != step::kNoBuffer && program_[op.in[k]].storage != step::Storage::kExternal)
      t.at.in[k] = ctx_.get<void>(op.in[k]);
  if (op.kind == OpKind::kEmbed) t.at.x = ctx_.get<void>(op[embed::kX]);
  t.step = inputs_.host_step(ctx_.step.micro, first, rows);
  check(cudaLaunchHostFunc(
            stream_of(q),
            [](void* task) {  // on a thread of the driver; must not call CUDA functions
              const auto& h = *static_cast<const HostTask*>(task);
              std::lock_guard running(h.queue->running);
              const Executor& e = *h.queue->executor;
              if (!h.queue->abandoned) host::run(e.pool_, e.program_, *h.op, h.at, h.step);
            },
            &t),
        "queueing a host operation");
  record_end(q, sequence);
}

/// Queues the four operations of the hybrid head (logits, copy down, cross-entropy with gradient, copy up)
/// one piece of tokens at a time, so that the product of the next piece overlaps with the copies and the host
/// operation of this one.
void Executor::queue_head_in_pieces(const step::Op* ops) {
  const step::Op &logits = ops[0], &down = ops[1], &loss = ops[2], &up = ops[3];
  assert(down.kind == OpKind::kCopy && loss.kind == OpKind::kCrossEntropy && up.kind == OpKind::kCopy);
  const std::uint64_t M = ctx_.step.rows, piece = head_piece_rows(program_[logits[head_logits::kLogits]]);
  for (std::uint64_t first = 0; first < M; first += piece) {
    const std::uint64_t rows = std::min(piece, M - first);
    // Rows of hf and of the logits, but the whole weights of the head.
    const auto all_rows = [&](step::In k) {
      return access_rows(logits[k], 0, program_[logits[k]].rows, false);
    };
    std::vector<Access> touched = {access_rows(logits[head_logits::kHf], first, rows, false),
                                   all_rows(head_logits::kHead),
                                   access_rows(logits[head_logits::kLogits], first, rows, true)};
    if (logits[head_logits::kB] != step::kNoBuffer) {  // a head with an adapter
      touched.push_back(access_rows(logits[head_logits::kU], first, rows, false));
      touched.push_back(all_rows(head_logits::kB));
    }
    const std::uint64_t sequence = wait_for_conflicts(kKernels, touched);
    queue_head_logits(ctx_, logits, first, rows);
    record_end(kKernels, sequence);
    queue_copy(down, first, rows);
    queue_host_op(loss, first, rows);
    queue_copy(up, first, rows);
  }
}

}  // namespace trainhost::cuda
