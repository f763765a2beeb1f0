// Threads that a run uses if train.threads is not set: one per core that this process may use, because
// hyper-threads share the FMA units of a core, but no more than the control group (container) has time for.
// More threads would all be stopped for the rest of each period.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

namespace trainhost {

/// Whole CPUs, at least 1, that cpu.max of the process's control group (version 2) and of the groups above it
/// allow; UINT32_MAX without a limit. root: "/" except in tests.
std::uint32_t cpus_by_quota(const std::filesystem::path& root);

/// Threads for a process that may use the given CPUs: one per core (cpu_topology.hpp), and no more than
/// cpus_by_quota(). Of `processes` processes that a launcher has started on this machine its share, at least
/// 1; of the cores only if it may use all `online` CPUs, because else the launcher has divided them.
std::uint32_t default_threads(const std::filesystem::path& root, std::span<const std::uint32_t> cpus,
                              std::uint32_t online, std::uint32_t processes);
/// The same of this machine and the CPUs of this process (its affinity).
std::uint32_t default_threads(std::uint32_t processes = 1);

}  // namespace trainhost
