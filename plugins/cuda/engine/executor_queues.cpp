// The executor's queues: what an operation touches, whom it waits for, and how copies and the host's work are
// put in line.
#include <algorithm>

#include "core/step/operands.hpp"
#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::cuda {

using step::OpKind;
using namespace step::operand;

namespace {

/// Rows of logits that travel together: about 32 MiB, so that copies, cross-entropy and products overlap.
std::uint64_t piece_rows(const step::Buffer& logits) {
  constexpr std::uint64_t kPieceBytes = 32u << 20;
  const std::uint64_t row = logits.cols * size_of(logits.dtype);
  return std::clamp<std::uint64_t>(kPieceBytes / std::max<std::uint64_t>(row, 1), 1, logits.rows);
}

}  // namespace

cudaStream_t Executor::queue(Queue q) const {
  switch (q) {
    case kUp:
      return *up_;
    case kDown:
      return *down_;
    case kHostWork:
      return *host_;
    default:
      return kernels_;
  }
}

Access Executor::rows_of(step::BufferId b, std::uint64_t first, std::uint64_t rows, bool write) const {
  const step::Buffer& x = program_[b];
  const std::uint64_t row = x.cols * size_of(x.dtype);
  const std::uint64_t at = plan_.offset[b] + (x.ring > 1 ? ctx_.step.instance : 0) * x.instance_stride();
  return {x.tier, at + first * row, at + std::min(first + rows, x.rows) * row, write};
}

/// Everything that the operation reads and writes, scratch included.
std::vector<Access>& Executor::accesses(const step::Op& op) {
  touched_.clear();
  const step::OpInfo& info = step::op_info(op.kind);
  const auto add = [&](step::BufferId b, bool write) {
    if (b != step::kNoBuffer && program_[b].storage != step::Storage::kExternal)
      touched_.push_back(rows_of(b, 0, program_[b].rows, write));
  };
  for (std::size_t k = 0; k < op.ins; ++k) add(op.in[k], (info.inout_mask | info.scratch_mask) >> k & 1);
  for (step::BufferId b : op.outputs()) add(b, true);
  return touched_;
}

/// The newest event of a queue that covers `sequence`. Copies and host work have one each; kernels get one
/// when somebody asks, which then covers everything queued so far.
cudaEvent_t Executor::done(Queue q, std::uint64_t sequence) {
  if (q != kKernels) return event_of_[q][sequence - 1];
  if (kernel_mark_ < sequence) {
    kernel_event_ = events_.next();
    check(cudaEventRecord(kernel_event_, kernels_), "recording an event");
    kernel_mark_ = event_of_[kKernels].size();
  }
  return kernel_event_;
}

void Executor::wait(Queue q, const QueueOrder::Place& place) {
  const bool any = std::any_of(place.wait.begin(), place.wait.end(), [](std::uint64_t s) { return s != 0; });
  if (!any) return;
  if (q == kKernels && steps_) counters_.mark(kernels_);
  for (std::uint32_t r = 0; r < kQueues; ++r)
    if (place.wait[r])
      check(cudaStreamWaitEvent(queue(q), done(static_cast<Queue>(r), place.wait[r]), 0), "ordering queues");
  if (q == kKernels && steps_) counters_.mark(kernels_);
}

/// Puts an operation in line: waits for what it must not overtake. The caller queues it, then calls placed().
std::uint64_t Executor::place(Queue q, std::span<const Access> touched) {
  const QueueOrder::Place p = order_.add(q, touched);
  wait(q, p);
  event_of_[q].push_back(nullptr);
  return p.sequence;
}

void Executor::placed(Queue q, std::uint64_t sequence) {
  if (q == kKernels) return;
  const cudaEvent_t e = events_.next();
  check(cudaEventRecord(e, queue(q)), "recording an event");
  event_of_[q][sequence - 1] = e;
}

void Executor::one(std::span<const step::Op> ops) {
  const step::Op& op = ops.front();
  if (resident()) return queue_ops(ctx_, ops);
  if (op.kind == OpKind::kHold) return;
  if (op.kind == OpKind::kCopy) return copy(op, 0, program_[op[copy::kFrom]].rows);
  if (step::runs_on_host(program_, op)) return host_work(op, 0, ctx_.step.rows);
  std::vector<Access> all;
  for (const step::Op& o : ops) {
    const std::vector<Access>& a = accesses(o);
    all.insert(all.end(), a.begin(), a.end());
  }
  const std::uint64_t sequence = place(kKernels, all);
  queue_ops(ctx_, ops);
  placed(kKernels, sequence);
}

/// Rows [first, first + rows) of a copy; one transfer is counted when its first rows go. Activations of a
/// short micro-batch (evaluation) have fewer rows than planned.
void Executor::copy(const step::Op& op, std::uint64_t first, std::uint64_t rows) {
  const step::Buffer &from = program_[op[copy::kFrom]], &to = program_[op[copy::kTo]];
  const bool upwards = to.tier == Tier::kDevice,
             whole = from.persistent || op.rows == 0 || from.rows != op.rows;
  if (!whole) rows = std::min(rows, ctx_.step.rows > first ? ctx_.step.rows - first : 0);
  const Access touched[] = {rows_of(op[copy::kFrom], first, rows, false),
                            rows_of(op[copy::kTo], first, rows, true)};
  const Queue q = upwards ? kUp : kDown;
  const std::uint64_t sequence = place(q, touched);
  const std::uint64_t row = from.cols * size_of(from.dtype);
  check(cudaMemcpyAsync(ctx_.get<std::byte>(op[copy::kTo]) + first * row,
                        ctx_.get<std::byte>(op[copy::kFrom]) + first * row, rows * row,
                        upwards ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, queue(q)),
        "queueing a copy of " + from.name());
  placed(q, sequence);
  if (!steps_) return;
  RunCounters::Class& c = op.flags & step::kActivationCopy ? counters_.activation
                          : op.flags & step::kSyncCopy     ? counters_.sync
                                                           : counters_.stream;
  if (first == 0)
    counters_.count(c, upwards, whole ? from.instance_bytes() : ctx_.step.rows * row, 1);
  else
    ++counters_.chunks;
}

/// Queued behind what it needs, and run by a thread of the driver with all threads of the pool.
void Executor::host_work(const step::Op& op, std::uint64_t first, std::uint64_t rows) {
  const bool by_rows = op.kind == OpKind::kCrossEntropy;
  std::vector<Access>& touched = accesses(op);
  if (by_rows)
    touched.front() = rows_of(op[cross_entropy::kLogits], first, rows, true),
    touched[touched.size() - 2] = touched.front();
  const std::uint64_t sequence = place(kHostWork, touched);
  HostTask& t = host_work_->tasks.emplace_back();
  t.work = host_work_.get(), t.op = &op;
  for (std::size_t k = 0; k < op.ins; ++k)
    if (op.in[k] != step::kNoBuffer && program_[op.in[k]].storage != step::Storage::kExternal)
      t.at.in[k] = ctx_.get<void>(op.in[k]);
  if (op.kind == OpKind::kEmbed) t.at.x = ctx_.get<void>(op[embed::kX]);
  t.step = inputs_.host_step(ctx_.step.micro, first, rows);
  check(cudaLaunchHostFunc(
            *host_,
            [](void* task) {
              const auto& h = *static_cast<const HostTask*>(task);
              std::lock_guard turn(h.work->turn);
              const Executor& e = *h.work->executor;
              if (!h.work->abandoned) host::run(e.pool_, e.program_, *h.op, h.at, h.step);
            },
            &t),
        "queueing work of the host");
  placed(kHostWork, sequence);
}

/// Logits, down, loss and gradient on the host, up: a piece of tokens at a time through all four, so that the
/// copies and the host work while the device goes on.
void Executor::head_in_pieces(const step::Op* four) {
  const step::Op &logits = four[0], &down = four[1], &loss = four[2], &up = four[3];
  const std::uint64_t M = ctx_.step.rows, piece = piece_rows(program_[logits[head_logits::kLogits]]);
  for (std::uint64_t first = 0; first < M; first += piece) {
    const std::uint64_t rows = std::min(piece, M - first);
    const Access touched[] = {
        rows_of(logits[head_logits::kHf], first, rows, false),
        rows_of(logits[head_logits::kHead], 0, program_[logits[head_logits::kHead]].rows, false),
        rows_of(logits[head_logits::kLogits], first, rows, true)};
    const std::uint64_t sequence = place(kKernels, touched);
    queue_head_logits(ctx_, logits, first, rows);
    placed(kKernels, sequence);
    copy(down, first, rows);
    host_work(loss, first, rows);
    copy(up, first, rows);
  }
}

}  // namespace trainhost::cuda
