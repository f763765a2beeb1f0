// See cpu_quota.hpp. A quota that is not a whole number of CPUs is rounded down: a fraction of a CPU would
// slow every job, because all threads wait for the last one.
#include "core/process/cpu_quota.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/process/cpu_topology.hpp"

namespace trainhost {
namespace {

/// Whether the environment of a process, "NAME=value" with a zero byte after each, has the variable.
bool has_variable(const std::filesystem::path& environment, std::string_view name) {
  std::ifstream file(environment);
  for (std::string line; std::getline(file, line, '\0');)
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=') return true;
  return false;
}

std::vector<std::uint32_t> online_cpus(const std::filesystem::path& root) {
  std::string cpus;
  std::ifstream file(root / "sys/devices/system/cpu/online");
  std::getline(file, cpus);
  return parse_cpu_list(cpus);
}

}  // namespace

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

std::vector<std::uint32_t> launcher_cpus(const std::filesystem::path& root, std::string_view rank_variable) {
  std::string process = "self";
  for (bool first = true;; first = false) {
    std::string parent, cpus;
    std::ifstream status(root / "proc" / process / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("PPid:")) parent = line.substr(line.find_first_not_of(" \t", 5));
      if (line.starts_with("Cpus_allowed_list:")) cpus = line.substr(line.find_first_not_of(" \t", 18));
    }
    if (parent.empty()) return online_cpus(root);
    // The environment of a launcher of another user (slurmstepd) cannot be read: it has no rank.
    if (!first && !has_variable(root / "proc" / process / "environ", rank_variable))
      return parse_cpu_list(cpus);
    process = parent;
  }
}

std::uint32_t default_threads(const std::filesystem::path& root, std::span<const std::uint32_t> cpus,
                              std::span<const std::uint32_t> launcher, std::uint32_t processes) {
  // A launcher that was bound to other CPUs than its processes has divided at least theirs.
  std::vector<std::uint32_t> all(cpus.begin(), cpus.end());
  all.insert(all.end(), launcher.begin(), launcher.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const std::uint64_t own = core_count(cpu_places(root, cpus)),
                      divided = std::max(1u, core_count(cpu_places(root, all))),
                      count = std::max(1u, processes),
                      sharing = std::max<std::uint64_t>(1, (own * count + divided - 1) / divided);
  return static_cast<std::uint32_t>(
      std::max<std::uint64_t>(1, std::min(own / sharing, cpus_by_quota(root) / count)));
}

std::uint32_t default_threads() { return default_threads("/", process_cpus(), {}, 1); }

std::uint32_t default_threads(std::uint32_t processes, std::string_view rank_variable) {
  return default_threads("/", process_cpus(), launcher_cpus("/", rank_variable), processes);
}

}  // namespace trainhost
