// Walks a step program on a device: one update, one evaluation, one generated token. Knows sections, queues
// and scalars, not shapes; kernels are queued by ops_*.cpp. One stream where everything is resident; where
// parts live on the host four queues run beside each other, and QueueOrder says who waits for whom. Allocates
// no device memory.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/executor/update_result.hpp"
#include "plugins/cuda/engine/cuda_graphs.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/engine/queue_order.hpp"
#include "plugins/cuda/engine/run_counters.hpp"
#include "plugins/cuda/engine/step_inputs.hpp"
#include "plugins/cuda/engine/streams_events.hpp"
#include "plugins/cuda/host/host_ops.hpp"

namespace trainhost::cuda {

class OpTimer;

using executor::Outcome;
using executor::UpdateInput;
using executor::UpdateResult;

class Executor {
 public:
  /// All arguments must outlive it. Fills the rotary table on the device.
  Executor(const step::Program& program, const placement::MemoryPlan& plan, const Arenas& arenas, Gemm& gemm,
           ThreadPool& pool);
  ~Executor();

  /// One optimizer update. `cancelled` is asked before each micro-batch. Not kDone: no weight and no moment
  /// has changed.
  Outcome update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out);
  /// Mean loss over the counted targets of `sequences` <= micro_batch sequences.
  Outcome evaluate(const std::int32_t* tokens, const std::int32_t* targets, std::uint32_t sequences,
                   UpdateResult& out);
  /// Logits [vocab] of the token after `token` at `position`.
  void next_logits(std::int32_t token, std::uint32_t position, float* logits);

  /// The host's copy of a tied table, after weights were changed from outside.
  void refresh_mirrors();
  /// Waits until nothing is under way.
  void settle();
  /// An update was interrupted between its first and its last weight.
  bool half_updated() const { return half_updated_; }

  cudaStream_t stream() const { return kernels_; }
  const RunCounters& counters() const { return counters_; }
  OpContext& context() { return ctx_; }
  /// Times the operations of update() from now on; nullptr: no more.
  void watch(OpTimer* log) { log_ = log; }

 private:
  struct HostWork;
  struct HostTask {
    HostWork* work;
    const step::Op* op;
    host::Operands at;
    host::Step step;
  };
  /// Tasks that the driver's thread will start. Where the device is lost nobody can say whether it still
  /// will: then none does anything any more, and this outlives the executor.
  struct HostWork {
    Executor* executor;
    std::deque<HostTask> tasks;
    std::mutex turn = {};    // held by the task that runs
    bool abandoned = false;  // under turn
  };
  /// Ends a section whatever happens: nothing stays under way that points into it.
  class Scope;
  void abandon_tasks();

  bool resident() const { return !up_; }
  cudaStream_t queue(Queue q) const;
  void range(std::uint32_t begin, std::uint32_t end);
  void one(std::span<const step::Op> ops);
  void copy(const step::Op& op, std::uint64_t first, std::uint64_t rows);
  void host_work(const step::Op& op, std::uint64_t first, std::uint64_t rows);
  void head_in_pieces(const step::Op* four);
  void forward(std::uint32_t micro);
  void backward(std::uint32_t micro);
  void micro_batches(const std::function<bool()>& cancelled, bool& stopped);
  void update_section();
  void host_updates(const step::Section& s);

  // Ordering (executor_queues.cpp).
  std::vector<Access>& accesses(const step::Op& op);
  Access rows_of(step::BufferId b, std::uint64_t first, std::uint64_t rows, bool write) const;
  std::uint64_t place(Queue q, std::span<const Access> accesses);
  void wait(Queue q, const QueueOrder::Place& place);
  cudaEvent_t done(Queue q, std::uint64_t sequence);
  void placed(Queue q, std::uint64_t sequence);

  const step::Program& program_;
  const placement::MemoryPlan& plan_;
  const Arenas& arenas_;
  ThreadPool& pool_;
  Stream kernels_;
  std::unique_ptr<Stream> up_, down_, host_;  // where parts live on the host
  OpContext ctx_;
  StepInputs inputs_;
  RunCounters counters_;
  CudaGraphs graphs_;
  QueueOrder order_;
  Events events_{false};
  std::array<std::vector<cudaEvent_t>, kQueues> event_of_;  // by sequence - 1; of kernels: see done()
  std::uint64_t kernel_mark_ = 0;  // sequence that the newest event of the kernels covers
  cudaEvent_t kernel_event_ = nullptr;
  std::vector<Access> touched_;
  std::unique_ptr<HostWork> host_work_;
  std::uint32_t cut_ = 0;  // where the backward part of the micro section begins
  bool rings_ = false, half_updated_ = false, steps_ = false;
  step::BufferId host_scalars_ = step::kNoBuffer;
  OpTimer* log_ = nullptr;
};

/// Targets that are counted (not -100).
std::uint64_t counted_targets(const std::int32_t* targets, std::uint64_t n);

}  // namespace trainhost::cuda
