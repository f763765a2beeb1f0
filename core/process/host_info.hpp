// Facts about this process and this machine, from /proc and control groups. A fact that the system does not
// provide is 0. Linux only.
#pragma once
#include <cstdint>
#include <optional>

namespace trainhost {

std::uint64_t process_peak_bytes();  // VmHWM: peak resident memory
/// MemAvailable, or less where a control group allows less; nothing if neither can be read.
std::optional<std::uint64_t> free_host_bytes();

/// Reads the resident memory of this process. Cheap enough to call within a step: the file stays open and no
/// memory is allocated.
class ResidentMeter {
 public:
  ResidentMeter();
  ~ResidentMeter();
  ResidentMeter(const ResidentMeter&) = delete;
  std::uint64_t bytes() const;  // VmRSS

 private:
  int fd_;
  std::uint64_t page_bytes_;
};

unsigned cpu_count();  // processors this process may run on

}  // namespace trainhost
