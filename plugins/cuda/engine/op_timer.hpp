// Times the operations of an update on the device while somebody watches: two events each, read when the step
// is done and put on the host's clock. Under it a step runs without recorded graphs. Where queues wait for
// each other, what an operation waited for is in its time.
#pragma once
#include <chrono>
#include <vector>

#include "core/abi/op_journal.hpp"
#include "plugins/cuda/engine/streams_events.hpp"

namespace trainhost::cuda {

class OpTimer {
 public:
  /// See abi::OpJournal.
  OpTimer(const step::Program& program, const placement::MemoryPlan& plan, void* records, th_moments* moments)
      : journal_(program, plan, records, moments) {}

  /// The device is idle: the moment at which both clocks are read.
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
  /// Around the operations [op, op + count).
  void enter(std::uint32_t op, cudaStream_t stream) {
    journal_.enter(op);
    op_ = op;
    times_.push_back(events_.next());
    check(cudaEventRecord(times_.back(), stream), "recording an event");
  }
  void leave(std::uint32_t count, cudaStream_t stream) {
    times_.push_back(events_.next());
    check(cudaEventRecord(times_.back(), stream), "recording an event");
    journal_.add({0, 0, op_, count, journal_.micro(), 0});
  }
  /// After everything is done.
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
  std::vector<cudaEvent_t> times_;  // begin, end, begin, end, ...
  cudaEvent_t base_ = nullptr;
  std::uint64_t base_ns_ = 0;
  std::uint32_t op_ = 0;
};

}  // namespace trainhost::cuda
