// The largest single block that operator new was asked for since somebody set it to zero: the tests of rule
// 25 read it.
#pragma once
#include <atomic>
#include <cstddef>

namespace trainhost::test {

std::atomic<std::size_t>& largest_allocation();

}  // namespace trainhost::test
