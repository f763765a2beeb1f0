// Checks a memory plan from the program, the offsets and the meaning of the operations, independently of the
// code that made it. Rejects: two live buffers that overlap, a buffer outside the arena or misaligned, a read
// before a write, a parameter that is not updated, a gradient without exactly one first writer, operands
// whose shapes do not fit the operation.
#pragma once
#include <string>
#include <vector>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

/// Every violated fact, one sentence each; empty if the plan is correct.
std::vector<std::string> check(const Program& p, const MemoryPlan& plan);

}  // namespace trainhost::placement
