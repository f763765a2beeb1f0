// Cores and NUMA nodes of the CPUs that this process may use, and which CPUs each worker is bound to. Read
// from /sys, where a CPU is a hardware thread: hyper-threads of a core share its FMA units and caches.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace trainhost {

/// A CPU of the operating system, its core, named by the lowest CPU that shares it, and its NUMA node.
struct CpuPlace {
  std::uint32_t cpu, core, node;
  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

/// The CPUs that the calling thread may use (its affinity), ascending; empty if the system does not say.
std::vector<std::uint32_t> allowed_cpus();

/// allowed_cpus() of the first call in this process: a worker that was bound later sees fewer.
const std::vector<std::uint32_t>& process_cpus();

/// Numbers of a list such as "0-3,8"; empty if it is malformed or has more than 65,536 CPUs.
std::vector<std::uint32_t> parse_cpu_list(const std::string& text);

/// Places of the given CPUs, by node, core and CPU. Without files about a CPU it is a core of its own on node
/// 0. root: "/" except in tests.
std::vector<CpuPlace> cpu_places(const std::filesystem::path& root, std::span<const std::uint32_t> cpus);

/// The number of different cores.
std::uint32_t core_count(std::span<const CpuPlace> places);

/// Whether the CPUs are of several nodes.
bool spans_nodes(std::span<const CpuPlace> places);

/// What a worker stays on.
enum class Binding { kNone, kNode, kCore };

/// What TRAINHOST_CPU_BIND = none | node | core says; node without it. Throws usage_error for another value.
Binding selected_binding();

/// The CPUs to which each of `threads` workers is bound. Neighbouring workers, which process neighbouring
/// rows, are on neighbouring cores. kNode: those of the worker's node. kCore: those of its core. Empty if
/// workers are not bound: kNone, kNode with one node, or fewer threads than cores, because other processes
/// with few threads would be bound to the same first cores.
std::vector<std::vector<std::uint32_t>> worker_cpus(std::span<const CpuPlace> places, std::uint32_t threads,
                                                    Binding binding);
/// The same of this process and machine, by selected_binding().
std::vector<std::vector<std::uint32_t>> worker_cpus(std::uint32_t threads);

}  // namespace trainhost
