// Lets operator new fail; for the tests of code that runs without memory.
#pragma once

namespace trainhost::test {

/// From now on the first `count` allocations succeed and all later ones throw std::bad_alloc; -1: all
/// succeed.
void fail_allocations_after(long count);

}  // namespace trainhost::test
