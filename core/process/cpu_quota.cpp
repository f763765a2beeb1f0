// See cpu_quota.hpp. A quota that is not a whole number of CPUs is rounded down: a fraction of a CPU would
// slow every job, because all threads wait for the last one.
#include "core/process/cpu_quota.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/process/cpu_topology.hpp"

namespace trainhost {

std::uint32_t cpus_by_quota(const std::filesystem::path& root) {
  std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;  // "0::" is the group of version 2
    const std::filesystem::path top = root / "sys/fs/cgroup";
    for (std::filesystem::path group = line.substr(4);; group = group.parent_path()) {
      std::ifstream file(top / group /
                         "cpu.max");  // "150000 100000": microseconds of every 100000; or "max 100000"
      double time = 0, period = 0;
      if (file >> time >> period && time > 0 && period > 0)
        least = std::min(least, static_cast<std::uint32_t>(std::clamp(time / period, 1.0, 1e6)));
      if (group.empty()) break;
    }
  }
  return least;
}

std::uint32_t default_threads(const std::filesystem::path& root, std::span<const std::uint32_t> cpus,
                              std::uint32_t online, std::uint32_t processes) {
  const std::uint32_t cores = core_count(cpu_places(root, cpus)), sharing = std::max(1u, processes),
                      own = cpus.size() < online ? cores : cores / sharing;
  return std::max(1u, std::min(own, cpus_by_quota(root) / sharing));
}

std::uint32_t default_threads(std::uint32_t processes) {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return default_threads("/", process_cpus(), static_cast<std::uint32_t>(std::max(1L, online)), processes);
}

}  // namespace trainhost
