// Threads that a run uses if train.threads is not set: one per core that this process may use, because
// hyper-threads share the FMA units of a core, but no more than the control group (container) has time for.
// More threads would all be stopped for the rest of each period.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace trainhost {

/// Whole CPUs, at least 1, that cpu.max of the process's control group (version 2) and of the groups above it
/// allow; UINT32_MAX without a limit. root: "/" except in tests.
std::uint32_t cpus_by_quota(const std::filesystem::path& root);

/// CPUs of the launcher of this process, ascending: what it may divide among the processes that it starts.
/// The launcher is the nearest ancestor whose environment lacks `rank_variable`; programs between it and this
/// one, such as a shell, have it. All CPUs that are online if the launcher cannot be seen, as from a
/// container; empty if the system does not say either. root: "/" except in tests.
std::vector<std::uint32_t> launcher_cpus(const std::filesystem::path& root, std::string_view rank_variable);

/// Threads for a process that may use the given CPUs: one per core (cpu_topology.hpp), and no more than
/// cpus_by_quota(). Of `processes` processes that a launcher has started on this machine its share, at least
/// 1: if all can have as many cores of `launcher` as this one, each has its own; else so many share these
/// cores as the sizes of the two sets require. Both sets count by their cores; `launcher` may be empty.
std::uint32_t default_threads(const std::filesystem::path& root, std::span<const std::uint32_t> cpus,
                              std::span<const std::uint32_t> launcher, std::uint32_t processes);
/// The same of this machine and the CPUs of this process (its affinity).
std::uint32_t default_threads();
/// The same of one of `processes` processes to each of which a launcher gave the variable of its rank.
std::uint32_t default_threads(std::uint32_t processes, std::string_view rank_variable);

}  // namespace trainhost
