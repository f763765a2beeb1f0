// Threads that a run uses if train.threads is not set: the CPUs of this process, but no more than the control
// group (container) has time for. More threads would all be stopped for the rest of each period.
#pragma once
#include <cstdint>
#include <filesystem>

namespace trainhost::cpu {

/// Whole CPUs, at least 1, that cpu.max of the process's control group (version 2) and of the groups above it
/// allow; UINT32_MAX without a limit. root: "/" except in tests.
std::uint32_t cpus_by_quota(const std::filesystem::path& root);

/// The smaller of the CPUs that this process may use (its affinity) and cpus_by_quota("/").
std::uint32_t default_threads();

}  // namespace trainhost::cpu
