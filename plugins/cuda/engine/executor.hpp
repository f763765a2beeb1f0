// Executes a step program on a device: one update, one evaluation, or one generated token. Handles sections,
// queues and scalars; kernels and products are queued by ops_*.cpp (op_context.hpp). In the resident mode all
// work is on one stream, with several ranks also on one for communication; in the hybrid and streamed modes
// there are six queues, ordered by QueueOrder. Allocates no device memory. All functions must be called by
// one thread at a time.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/executor/host_arguments.hpp"
#include "core/executor/rank_operations.hpp"
#include "plugins/cuda/engine/cuda_graphs.hpp"
#include "plugins/cuda/engine/nccl_ranks.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/engine/queue_order.hpp"
#include "plugins/cuda/engine/run_counters.hpp"
#include "plugins/cuda/engine/step_inputs.hpp"
#include "plugins/cuda/engine/streams_events.hpp"
#include "plugins/cuda/host/host_ops.hpp"

namespace trainhost::cuda {

class OpTimer;

using executor::counted_targets;
using executor::Outcome;
using executor::UpdateInput;
using executor::UpdateResult;

class Executor {
 public:
  /// All arguments must outlive it. Fills the rotary table on the device. ranks: null in a run of one rank.
  Executor(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan,
           const Arenas& arenas, Gemm& gemm, ThreadPool& pool, NcclRanks* ranks);
  /// Waits for all queued work, except after the device was lost.
  ~Executor();

  /// One optimizer update. `cancelled` is called before each micro-batch. If the result is not kDone, no
  /// weight and no moment has changed.
  Outcome update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out);
  /// After an update that was not finite: computes its micro-batches again and says where the first tensor
  /// that is not finite comes from (core/executor/nonfinite.hpp). Changes gradients only.
  std::string find_nonfinite(const UpdateInput& in, const std::function<bool()>& cancelled);
  /// Mean loss over the counted targets of `sequences` <= micro_batch sequences. Changes no weight.
  Outcome evaluate(const std::int32_t* tokens, const std::int32_t* targets, const std::int32_t* starts,
                   std::uint32_t sequences, UpdateResult& out);
  /// Logits [vocab] of the token after `token` at `position`.
  void next_logits(std::int32_t token, std::uint32_t position, float* logits);

  /// Sum of the squares of the gradients of a layer in the last update, before clipping; layer -1: of those
  /// outside the layers. Of several ranks, of the elements that this one counts. Negative where the gradients
  /// of a whole update are not in memory: before the first one, after one that was cancelled, and after an
  /// evaluation or a generated token, which use their memory.
  double layer_grad_squares(std::int32_t layer);

  /// Copies tied embedding tables from the device to the host; needed after load() or init() changed weights.
  void refresh_host_copies();
  /// Blocks until no work is pending on any queue; throws the first error of any of them.
  void wait_for_all_queues();
  /// True if an update failed after its first weight was changed: the state is neither the old nor the new
  /// one.
  bool half_updated() const { return half_updated_; }

  cudaStream_t stream() const { return kernels_; }
  const RunCounters& counters() const { return counters_; }
  /// Bytes that this rank has sent to others, and the time that it has waited for them on the host.
  const executor::RankTraffic& traffic() const { return traffic_; }
  OpContext& context() { return ctx_; }
  /// Times the operations of update() from now on; nullptr stops. `timer` must outlive its use.
  void set_op_timer(OpTimer* timer) { timer_ = timer; }

 private:
  struct HostTaskQueue;
  /// One host operation, the argument of a cudaLaunchHostFunc callback.
  struct HostTask {
    HostTaskQueue* queue;
    const step::Op* op;
    host::Operands at;
    host::Step step;
  };
  /// Host operations that a thread of the driver will start. A deque, because the callbacks have addresses of
  /// its elements. After the device was lost it is unknown whether the driver will still call them: then
  /// `abandoned` makes them return at once, and the queue outlives the executor (see ~Executor()).
  struct HostTaskQueue {
    Executor* executor;
    std::deque<HostTask> tasks;
    std::mutex running = {};  // held by the callback that runs
    bool abandoned = false;   // protected by `running`
  };
  class Scope;
  void abandon_host_tasks();
  void set_inputs(const UpdateInput& in, std::uint64_t counted);
  bool is_finite(step::BufferId b);

  bool resident() const { return !up_; }
  cudaStream_t stream_of(Queue q) const;
  std::uint32_t queue_next(std::uint32_t i, std::uint32_t end);
  void queue_range(std::uint32_t begin, std::uint32_t end);
  void queue_one(std::span<const step::Op> ops);
  void queue_copy(const step::Op& op, std::uint64_t first, std::uint64_t rows);
  void queue_host_op(const step::Op& op, std::uint64_t first, std::uint64_t rows);
  void queue_head_in_pieces(const step::Op* ops);
  void queue_forward(std::uint32_t micro);
  void queue_backward(std::uint32_t micro);
  bool queue_micro_batches(const std::function<bool()>& cancelled);
  void run_update_section();
  void run_host_update(const step::Op& op);
  void run_host_updates(const step::Section& s);
  void run_updates_in_order(const step::Section& s);

  // Several ranks (executor_ranks.cpp).
  bool skips(const step::Op& op) const;
  bool agree_to_go_on(std::uint64_t& counted, const std::function<bool()>& cancelled);
  void start_collectives(std::span<const step::Op> ops);
  void wait_for_collectives(std::span<const step::Op> ops);
  void sum_scalars(const step::Op& op);

  // Order of the queues (executor_queues.cpp).
  std::vector<Access>& accesses(const step::Op& op);
  Access access_rows(step::BufferId b, std::uint64_t first, std::uint64_t rows, bool write) const;
  std::uint64_t wait_for_conflicts(Queue q, std::span<const Access> accesses);
  void issue_waits(Queue q, const QueueOrder::Waits& waits);
  cudaEvent_t event_covering(Queue q, std::uint64_t sequence);
  void record_end(Queue q, std::uint64_t sequence);

  const th_host* host_interface_;
  const step::Program& program_;
  const placement::MemoryPlan& plan_;
  const Arenas& arenas_;
  ThreadPool& pool_;
  Stream kernels_;
  std::unique_ptr<Stream> up_, down_, host_, embedding_, hidden_;  // null in the resident mode
  NcclRanks* const ranks_;                                         // null in a run of one rank
  std::unique_ptr<Stream> communication_;  // likewise: collective operations, in the order of the program
  OpContext ctx_;
  StepInputs inputs_;
  RunCounters counters_;
  CudaGraphs graphs_;
  QueueOrder order_;
  Events events_{false};
  // By queue and sequence - 1: the event that was recorded after the operation. Entries of kKernels stay
  // null: event_covering() records events of that queue only when another queue waits for it.
  std::array<std::vector<cudaEvent_t>, kQueues> event_of_;
  std::uint64_t kernel_event_sequence_ = 0;  // last operation of kKernels that kernel_event_ covers
  cudaEvent_t kernel_event_ = nullptr;
  std::vector<Access> touched_;  // scratch of accesses()
  std::unique_ptr<HostTaskQueue> host_tasks_;
  std::uint32_t backward_begin_ = 0;  // index of the first backward operation of the micro section
  bool rings_ = false;                // buffers of the micro section have two instances (hybrid)
  bool half_updated_ = false;
  bool updated_ = false;             // an update was completed
  bool gradients_complete_ = false;  // gradients are those of a whole update
  bool may_capture_ = false;         // CUDA graphs are used: after the first update, until a capture fails
  bool in_update_ = false;           // transfers and operations are counted and timed in updates only
  step::BufferId host_scalars_ = step::kNoBuffer;
  OpTimer* timer_ = nullptr;
  std::vector<cudaEvent_t> collective_done_;  // by buffer, of the collective that was started last on it
  executor::RankTraffic traffic_;
};

/// Ends an update, an evaluation or a token, also after an exception: waits for all queues and resets the
/// bookkeeping, so that no queued work refers to it any more.
class Executor::Scope {
 public:
  explicit Scope(Executor& e) : e_(e) {}
  ~Scope() {
    if (!done_) {
      try {
        e_.wait_for_all_queues();
        done_ = true;
      } catch (...) {  // the device is lost; its pending work will not complete
      }
    }
    // Only now may events and tasks be reused: no queued work refers to them, or none of it will run.
    e_.in_update_ = false;
    e_.order_.all_done();
    e_.events_.reset();
    for (auto& events : e_.event_of_) events.clear();
    e_.kernel_event_sequence_ = 0, e_.kernel_event_ = nullptr;
    if (done_)
      e_.host_tasks_->tasks.clear();
    else
      e_.abandon_host_tasks();
  }
  /// Waits for all queues; throws errors of queued work, which the destructor would discard.
  void finish() {
    e_.wait_for_all_queues();
    done_ = true;
  }

 private:
  Executor& e_;
  bool done_ = false;
};

}  // namespace trainhost::cuda
