// What the system says about this process and this machine. Linux /proc; 0 where it does not say.
#pragma once
#include <cstdint>

namespace trainhost::run {

std::uint64_t process_peak_bytes();  // VmHWM: most resident memory ever
std::uint64_t free_host_bytes();     // MemAvailable, or less where a control group allows less
unsigned cpu_count();                // processors this process may run on

}  // namespace trainhost::run
