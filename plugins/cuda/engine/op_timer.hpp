// Times the operations of an update on the device for the profiler: two events per operation, read after the
// step and converted to the host's clock. While it is active, steps run without CUDA graphs. In modes with
// several queues the time of an operation includes its waits for other queues.
#pragma once
#include <cassert>
#include <chrono>
#include <vector>

#include "core/abi/op_journal.hpp"
#include "plugins/cuda/engine/streams_events.hpp"

namespace trainhost::cuda {

class OpTimer {
 public:
  /// Arguments as for abi::OpJournal.
  OpTimer(const step::Program& program, const placement::MemoryPlan& plan, void* records, th_moments* moments)
      : journal_(program, plan, records, moments) {}

  /// Records the base event and, as soon as it has completed, the host's clock: the two are taken as the same
  /// point in time. The device must be idle, so that the event completes immediately.
  void begin_update(cudaStream_t stream) {
    journal_.begin_update();
    events_.reset(), times_.clear();
    base_ = events_.next();
    check(cudaEventRecord(base_, stream), "recording an event");
    check(cudaEventSynchronize(base_), "waiting for the device");
    base_ns_ = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                              std::chrono::steady_clock::now().time_since_epoch())
                                              .count());
  }
  /// Called before the operations [op, op + count) are queued.
  void enter(std::uint32_t op, cudaStream_t stream) {
    assert(times_.size() % 2 == 0);
    journal_.enter(op);
    op_ = op;
    times_.push_back(events_.next());
    check(cudaEventRecord(times_.back(), stream), "recording an event");
  }
  /// Called after they are queued. The record's times are filled in by end_update().
  void leave(std::uint32_t count, cudaStream_t stream) {
    times_.push_back(events_.next());
    check(cudaEventRecord(times_.back(), stream), "recording an event");
    journal_.add({0, 0, op_, count, journal_.micro(), 0});
  }
  /// Reads the times. All work of the update must have finished.
  void end_update() {
    std::size_t i = 0;
    for (abi::OpRecord& r : journal_) {
      if (2 * i + 1 >= times_.size()) break;
      r.start_ns = base_ns_ + elapsed_ns(base_, times_[2 * i]);
      r.end_ns = base_ns_ + elapsed_ns(base_, times_[2 * i + 1]);
      ++i;
    }
    journal_.end_update();
  }
  void read(th_op_sink& sink) const { journal_.read(sink); }

 private:
  abi::OpJournal journal_;
  Events events_{true};
  std::vector<cudaEvent_t> times_;  // start and end of each record: 2i and 2i + 1
  cudaEvent_t base_ = nullptr;
  std::uint64_t base_ns_ = 0;  // CLOCK_MONOTONIC at base_
  std::uint32_t op_ = 0;       // of the current enter()
};

}  // namespace trainhost::cuda
