// Operator new that records the largest block and can fail. A program that links counted_allocations.cpp uses
// it for every allocation.
#pragma once
#include <atomic>
#include <cstddef>

namespace trainhost::test {

/// From now on the first `count` allocations succeed and all later ones throw std::bad_alloc; -1: all
/// succeed.
void fail_allocations_after(long count);

/// The largest block that operator new allocated since this was set to zero.
std::atomic<std::size_t>& largest_allocation();

}  // namespace trainhost::test
