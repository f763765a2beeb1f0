// Facts about this machine that decide whether and how fast it trains, judged: ok, warning or error. Each
// check takes its inputs as arguments: `root` is the directory that contains proc, sys and dev ("/").
// None of them throws for a file that is missing or has other contents.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/machine/finding.hpp"

namespace trainhost::machine {

/// Processor, instruction sets, CPU limit, caches and NUMA nodes. `usable`: CPUs that this process may run
/// on.
Findings check_cpu(const std::filesystem::path& root, unsigned usable);

/// Memory, its limit by control groups, and shared memory.
Findings check_memory(const std::filesystem::path& root);

struct DiskSpace {
  std::uint64_t free_bytes = 0, total_bytes = 0;
  bool writable = false;
};
/// Of the file system of `directory` or, as long as that does not exist, of its parent. nullopt: unknown.
std::optional<DiskSpace> disk_space(std::filesystem::path directory);
/// `use`: what the program writes there, "runs".
Finding check_disk(const std::string& use, const std::filesystem::path& directory,
                   const std::optional<DiskSpace>& space);

/// Limits of this process; nullopt = unlimited.
struct ProcessLimits {
  std::optional<std::uint64_t> open_files, processes, stack_bytes, locked_bytes, address_space_bytes,
      file_bytes, cpu_seconds;
};
ProcessLimits process_limits();
/// `root`: locked memory matters where InfiniBand is installed.
Findings check_limits(const ProcessLimits& limits, const std::filesystem::path& root);

struct Locale {
  std::string name;     // LC_ALL, LC_CTYPE or LANG; "" = none is set
  bool exists = true;   // false: the C library does not know it
  std::string charset;  // "UTF-8"
};
Locale locale_of_environment();
Finding check_locale(const Locale& locale);

}  // namespace trainhost::machine
