// For test programs whose global operator new is that of replaced_new.cpp: the largest block, and memory that
// runs out.
#pragma once
#include <atomic>
#include <cstddef>

namespace trainhost::test {

/// Bytes of the largest block that was allocated since this was set to zero.
std::atomic<std::size_t>& largest_allocation();

/// From now on the first `count` allocations succeed and all later ones throw std::bad_alloc; -1: all
/// succeed.
void fail_allocations_after(long count);

}  // namespace trainhost::test
