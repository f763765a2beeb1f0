// Proves a memory plan: knows the program, the offsets and the meaning of operands, and nothing of how they
// were found. Rejects: two live buffers that overlap, a buffer outside the arena or misaligned, a read before
// a write, a parameter nobody updates, a gradient with no or two first writers, operands whose shapes do not
// fit the operation.
#pragma once
#include <string>
#include <vector>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

/// Every fact that is broken, as one sentence each; empty = the plan holds.
std::vector<std::string> check(const Program& p, const MemoryPlan& plan);

}  // namespace trainhost::placement
