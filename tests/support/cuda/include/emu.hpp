// How tests steer the emulation of CUDA and look into it. The product never sees this header. Everything here holds for the
// whole process; emu::reset() at the start of a test case gives it a fresh machine.
#pragma once
#include <cstdint>
#include <vector>

namespace emu {

// ---- order of execution ------------------------------------------------------------------------------------------------

enum class Order { kAscending, kDescending, kRandom };

/// CUDA promises no order but that of streams, events and barriers; a result must be the same under every schedule.
struct Schedule {
  Order threads = Order::kAscending;  // which thread of a block runs on, once several could
  Order blocks = Order::kAscending;
  bool lazy = true;         // streams run only as far as somebody waits; false: everything runs as it is queued
  std::uint64_t seed = 1;   // for random orders, and for the stream that goes next
};
void set_schedule(const Schedule& s);
Schedule schedule();

/// A handful that finds most missing barriers: up, down, and three random ones.
std::vector<Schedule> every_schedule();

}  // namespace emu
