// The largest block that operator new allocated since this was set to zero; for the tests of rule 25.
#pragma once
#include <atomic>
#include <cstddef>

namespace trainhost::test {

std::atomic<std::size_t>& largest_allocation();

}  // namespace trainhost::test
