// What the system says about this process and this machine. Linux /proc; 0 where it does not say.
#pragma once
#include <cstdint>

namespace trainhost {

std::uint64_t process_peak_bytes();  // VmHWM: most resident memory ever
std::uint64_t free_host_bytes();     // MemAvailable, or less where a control group allows less

/// Resident memory now, cheap enough for the middle of a step: the file stays open, and nothing is allocated.
class ResidentMeter {
 public:
  ResidentMeter();
  ~ResidentMeter();
  ResidentMeter(const ResidentMeter&) = delete;
  std::uint64_t bytes() const;  // VmRSS; 0 where the system does not say

 private:
  int fd_;
  std::uint64_t page_bytes_;
};

unsigned cpu_count();  // processors this process may run on

}  // namespace trainhost
