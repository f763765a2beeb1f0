// Times the operations of an update while the profiler is on: two clock readings and one record per
// operation, in memory provided by the host.
#pragma once
#include <chrono>

#include "core/abi/op_journal.hpp"

namespace trainhost::executor {

class OperationTimer {
 public:
  /// See abi::OpJournal.
  OperationTimer(const step::Program& program, const placement::MemoryPlan& plan, void* records,
                 th_moments* moments)
      : journal_(program, plan, records, moments) {}

  void begin_update() { journal_.begin_update(); }
  /// Around the operations [op, op + count), on the thread that runs the program.
  void enter(std::uint32_t op) {
    journal_.enter(op);
    op_ = op;
    start_ns_ = now_ns();
  }
  void leave(std::uint32_t count) {
    const std::uint64_t end = now_ns();
    journal_.add({start_ns_, end, op_, count, journal_.micro(), 0});
  }
  void end_update() { journal_.end_update(); }
  void read(th_op_sink& sink) const { journal_.read(sink); }

 private:
  static std::uint64_t now_ns() {
    const auto t = std::chrono::steady_clock::now().time_since_epoch();  // CLOCK_MONOTONIC
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(t).count());
  }
  abi::OpJournal journal_;
  std::uint32_t op_ = 0;
  std::uint64_t start_ns_ = 0;
};

}  // namespace trainhost::executor
