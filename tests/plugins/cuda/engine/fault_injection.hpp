// The faults that fault_injection.cpp injects into the executor, and counts of its calls. All zero: no fault.
#pragma once
#include <cstdint>

namespace trainhost::test {

struct InjectedFaults {
  bool skip_every_wait = false;
  std::uint64_t skip_wait = 0;          // number of the wait to omit, from 1
  std::uint64_t double_copy = 0;        // number of the copy to repeat, from 1
  std::uint64_t waits = 0, copies = 0;  // calls so far
};
extern InjectedFaults faults;

}  // namespace trainhost::test
