// Records the operations of a profiled step and reports them to the host. Shared by all trainers that run
// step programs. The trainer supplies the times: when each operation began and ended.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/checked.hpp"
#include "core/placement/live_bytes.hpp"
#include "core/placement/memory_plan.hpp"
#include "core/step/op_cost.hpp"
#include "trainhost/profiler.h"

namespace trainhost::abi {

struct OpRecord {
  std::uint64_t start_ns, end_ns;  // CLOCK_MONOTONIC
  std::uint32_t op, count;         // operations [op, op + count) ran as one
  std::uint32_t micro, unused;
};

/// Memory for the records of one update, at most one an operation.
inline std::uint64_t record_bytes(const step::Program& p) {
  const step::Section micro = p.section(step::SectionKind::kMicro),
                      update = p.section(step::SectionKind::kUpdate);
  const std::uint64_t ops = checked_mul(micro.end - micro.begin, p.run.accumulate);
  return checked_mul(checked_add(ops, update.end - update.begin), sizeof(OpRecord));
}

class OpJournal {
 public:
  /// `records` has record_bytes(program); it, `moments`, program and plan must outlive the journal.
  OpJournal(const step::Program& program, const placement::MemoryPlan& plan, void* records,
            th_moments* moments);

  void begin_update();
  /// Before operation `op`: tells the host when a phase ends. Call it before reading a clock: that time
  /// belongs to no operation.
  void enter(std::uint32_t op);
  std::uint32_t micro() const { return micro_; }
  void add(const OpRecord& r) {
    if (count_ < capacity_) records_[count_++] = r;
  }
  /// Records of the update so far, to be completed by a trainer that learns the times later.
  OpRecord* begin() { return records_; }
  OpRecord* end() { return records_ + count_; }
  void end_update();

  /// Hands out the records of the last update, complete or not. Throws StatusError when the sink rejects.
  void read(th_op_sink& sink) const;

 private:
  void reached(std::uint32_t boundary, std::uint32_t micro, std::uint64_t live_bytes);

  const step::Program& program_;
  OpRecord* records_;
  std::uint64_t capacity_, count_ = 0;
  th_moments* moments_;
  placement::PhaseLiveBytes planned_;
  std::vector<std::uint64_t> live_;          // bytes, by operation
  std::vector<std::string> labels_;          // by operation; empty outside micro and update
  std::vector<step::OpCost> first_, later_;  // likewise: in the first micro-batch of an update, and in others
  std::uint32_t first_op_ = 0, micro_ = 0;
  std::uint32_t phase_ = 0;  // of the operation before; 0: none yet
};

}  // namespace trainhost::abi
