// See host_info.hpp. A file of /proc that is missing gives 0 or "no limit": containers hide some of them.
#include "core/process/host_info.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace trainhost {
namespace {

/// "Key:   123 kB" of a /proc file, in bytes; 0 when it is not there.
std::uint64_t proc_kib(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0 || line.size() <= key.size() || line[key.size()] != ':')
      continue;
    std::uint64_t kib = 0;
    std::istringstream(line.substr(key.size() + 1)) >> kib;
    return kib * 1024;
  }
  return 0;
}

std::uint64_t number_in(const std::string& file, std::uint64_t otherwise) {
  std::ifstream in(file);
  std::uint64_t n = 0;
  return in >> n ? n : otherwise;
}

/// What the control group of this process still allows (version 2: memory.max less memory.current). Limits of
/// all parents apply too, so the smallest counts.
std::uint64_t cgroup_free() {
  std::ifstream in("/proc/self/cgroup");
  std::uint64_t least = UINT64_MAX;
  for (std::string line; std::getline(in, line);) {
    // "0::" is the line of version 2.
    if (line.compare(0, 3, "0::") != 0) continue;
    for (std::string path = line.substr(3);; path = path.substr(0, path.rfind('/'))) {
      std::string dir = "/sys/fs/cgroup" + (path == "/" ? "" : path);
      // "max" is no number, so it reads as no limit.
      std::uint64_t max = number_in(dir + "/memory.max", UINT64_MAX),
                    now = number_in(dir + "/memory.current", 0);
      if (max != UINT64_MAX) least = std::min(least, max > now ? max - now : 0);
      if (path.empty() || path == "/") break;
    }
  }
  return least;
}

}  // namespace

std::uint64_t process_peak_bytes() { return proc_kib("/proc/self/status", "VmHWM"); }

// MemAvailable includes page cache that the kernel would give up.
std::optional<std::uint64_t> free_host_bytes() {
  const std::uint64_t available = proc_kib("/proc/meminfo", "MemAvailable"), allowed = cgroup_free();
  if (available == 0 && allowed == UINT64_MAX) return std::nullopt;
  return available == 0 ? allowed : std::min(available, allowed);
}

// Opened once: bytes() is called in each step. pread has no position, so several threads may call it.
ResidentMeter::ResidentMeter()
    : fd_(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)),
      page_bytes_(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) {}

ResidentMeter::~ResidentMeter() {
  if (fd_ >= 0) ::close(fd_);
}

// "size resident shared ...", in pages.
std::uint64_t ResidentMeter::bytes() const {
  char text[128];
  const ssize_t n = fd_ < 0 ? -1 : ::pread(fd_, text, sizeof text, 0);
  if (n <= 0) return 0;
  const char *end = text + n, *at = std::find(static_cast<const char*>(text), end, ' ');
  std::uint64_t pages = 0;
  if (at == end || std::from_chars(at + 1, end, pages).ec != std::errc{}) return 0;
  return pages * page_bytes_;
}

unsigned cpu_count() {
  cpu_set_t set;
  // Affinity, not the number of installed CPUs: containers and schedulers restrict it.
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace trainhost
