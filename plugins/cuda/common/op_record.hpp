// What the engine writes down of each operation while a step is profiled, and how much of it a step makes:
// the front answers that without the engine.
#pragma once
#include <cstdint>

#include "core/base/checked.hpp"
#include "core/plan/program.hpp"

namespace trainhost::cuda {

struct OpRecord {
  std::uint64_t start_ns, end_ns;
  std::uint32_t op, count;  // operations [op, op + count) ran as one
  std::uint32_t micro, unused;
};

/// Memory for the records of one update, at most one an operation.
inline std::uint64_t record_bytes(const plan::Program& p) {
  const plan::Section micro = p.section(plan::SectionKind::kMicro),
                      update = p.section(plan::SectionKind::kUpdate);
  const std::uint64_t ops = checked_mul(micro.end - micro.begin, p.run.accumulate);
  return checked_mul(checked_add(ops, update.end - update.begin), sizeof(OpRecord));
}

}  // namespace trainhost::cuda
