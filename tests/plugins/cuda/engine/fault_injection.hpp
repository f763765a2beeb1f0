// What fault_injection.cpp does to the executor, and what it has counted. All zero: nothing.
#pragma once
#include <cstdint>

namespace trainhost::test {

struct Plants {
  bool skip_every_wait = false;
  std::uint64_t skip_wait = 0;    // the wait with this number, from 1, is left out
  std::uint64_t double_copy = 0;  // likewise a copy that is made twice
  std::uint64_t waits = 0, copies = 0;
};
extern Plants plants;

}  // namespace trainhost::test
