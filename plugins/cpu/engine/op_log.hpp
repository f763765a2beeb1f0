// Times the operations of an update while somebody watches: two clock readings and one record each, in memory
// that the host gave. What the records mean (names, arithmetic, traffic) is worked out beforehand and added
// when they are read.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/memory_plan.hpp"
#include "core/plan/moments.hpp"
#include "core/plan/op_cost.hpp"
#include "plugins/cpu/common/op_record.hpp"
#include "trainhost/profiler.h"

namespace trainhost::cpu {

class OpLog {
 public:
  /// `records` has record_bytes(program); it, `moments`, program and plan must outlive the log.
  OpLog(const plan::Program& program, const plan::MemoryPlan& plan, void* records, th_moments* moments);

  void begin_update();
  /// Around the operations [op, op + count), on the thread that runs the program. enter() tells the host when
  /// a phase ends before it reads the clock: that time belongs to no operation.
  void enter(std::uint32_t op);
  void leave(std::uint32_t count);
  void end_update();

  /// Hands out the records of the last update, complete or not. Throws bridge::StatusError when the sink
  /// refuses.
  void read(th_op_sink& sink) const;

 private:
  void reached(std::uint32_t moment, std::uint32_t micro, std::uint64_t live_bytes);

  const plan::Program& program_;
  OpRecord* records_;
  std::uint64_t capacity_, count_ = 0;
  th_moments* moments_;
  plan::StepMoments planned_;
  std::vector<std::uint64_t> live_;          // bytes, by operation
  std::vector<std::string> labels_;          // by operation; empty outside micro and update
  std::vector<plan::OpCost> first_, later_;  // likewise: in the first micro-batch of an update, and in others
  std::uint32_t first_op_ = 0, op_ = 0, micro_ = 0;
  std::uint32_t phase_ = 0;  // of the operation before; 0: none yet
  std::uint64_t start_ns_ = 0;
};

}  // namespace trainhost::cpu
