// Memory and what limits it; space on disks.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/machine/check_machine.hpp"
#include "core/machine/system_files.hpp"

namespace trainhost::machine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1ull << 20, kGiB = 1ull << 30;

Finding of_memory(std::string name) { return {"memory", std::move(name)}; }

/// "24000000 kB" of a line of /proc/meminfo, in bytes.
std::uint64_t meminfo_bytes(const std::string& meminfo, const char* key) {
  return leading_number(value_of_line(meminfo, key)).value_or(0) * 1024;
}

Finding check_host_memory(const fs::path& root) {
  Finding f = of_memory("memory");
  const std::string meminfo = file_text(root / "proc/meminfo").value_or("");
  const std::uint64_t total = meminfo_bytes(meminfo, "MemTotal"),
                      free = meminfo_bytes(meminfo, "MemAvailable"),
                      swap = meminfo_bytes(meminfo, "SwapTotal");
  f.value = total ? fmt::format("{} available of {}, swap {}", format_bytes(free), format_bytes(total),
                                swap ? format_bytes(swap) : "none")
                  : "unknown";
  f.data = {{"available_bytes", free}, {"total_bytes", total}, {"swap_bytes", swap}};
  // Mode 2 counts reserved memory, of which the CUDA driver has terabytes.
  if (file_text(root / "proc/sys/vm/overcommit_memory") == "2") {
    f.state = State::kWarning;
    f.hint =
        "the kernel refuses to reserve more than it has (vm.overcommit_memory = 2), which CUDA does: "
        "sysctl vm.overcommit_memory=0";
  } else if (total && free < kGiB) {
    f.state = State::kWarning;
    f.hint = "end other programs; `trainhost plan` reports what a run needs";
  }
  return f;
}

/// The smallest limit of the control groups; version 1 writes a number near 2^63 for none.
Finding check_memory_limit(const fs::path& root) {
  Finding f = of_memory("memory limit");
  std::uint64_t limit = UINT64_MAX, used = 0;
  for (const fs::path& group : control_groups(root, "memory"))
    for (const auto& [max, current] : {std::pair{"memory.max", "memory.current"},
                                       std::pair{"memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
      const std::uint64_t n = leading_number(file_text(group / max).value_or("")).value_or(UINT64_MAX);
      if (n >= 1ull << 60 || n >= limit) continue;
      limit = n;
      used = leading_number(file_text(group / current).value_or("")).value_or(0);
    }
  if (limit == UINT64_MAX) {
    f.value = "none";
    f.data = {{"bytes", JsonValue()}};
    return f;
  }
  f.value =
      fmt::format("{}, by a control group, of which {} are used", format_bytes(limit), format_bytes(used));
  f.data = {{"bytes", limit}, {"used_bytes", used}};
  if (limit - std::min(used, limit) < kGiB) {
    f.state = State::kWarning;
    f.hint =
        "the kernel ends a run that exceeds it: raise the limit of the container or job (docker --memory, "
        "srun --mem)";
  }
  return f;
}

/// MPI and NCCL pass data between the processes of a machine there. Containers have 64 MiB by default.
Finding check_shared_memory(const fs::path& root) {
  Finding f = of_memory("shared memory");
  const std::optional<DiskSpace> space = disk_space(root / "dev/shm");
  std::error_code ec;
  if (!space || !fs::is_directory(root / "dev/shm", ec)) {
    f.value = "no /dev/shm";
    f.state = State::kWarning;
    f.hint = "runs of several processes need it: mount -t tmpfs tmpfs /dev/shm";
    return f;
  }
  f.value = fmt::format("{} free of {} in /dev/shm", format_bytes(space->free_bytes),
                        format_bytes(space->total_bytes));
  f.data = {{"free_bytes", space->free_bytes}, {"total_bytes", space->total_bytes}};
  if (space->free_bytes < 256 * kMiB) {
    f.state = State::kWarning;
    f.hint = "runs of several processes may fail: start the container with --shm-size=1g or --ipc=host";
  }
  return f;
}

}  // namespace

Findings check_memory(const fs::path& root) {
  return {check_host_memory(root), check_memory_limit(root), check_shared_memory(root)};
}

std::optional<DiskSpace> disk_space(fs::path directory) {
  std::error_code ec;
  while (!fs::exists(directory, ec) && directory.has_parent_path() && directory != directory.parent_path())
    directory = directory.parent_path();
  struct statvfs s {};
  if (::statvfs(directory.c_str(), &s) != 0) return std::nullopt;
  const bool read_only = s.f_flag & ST_RDONLY;
  return DiskSpace{s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize,
                   !read_only && ::access(directory.c_str(), W_OK | X_OK) == 0};
}

Finding check_disk(const std::string& use, const fs::path& directory, const std::optional<DiskSpace>& space) {
  Finding f{"disk", use};
  const std::string shown = escaped(directory.string(), 4096);
  f.data = {{"directory", directory.string()}};
  if (!space) {
    f.value = shown + ": unknown";
    return f;
  }
  f.value = fmt::format("{}: {} free of {}", shown, format_bytes(space->free_bytes),
                        format_bytes(space->total_bytes));
  f.data["free_bytes"] = space->free_bytes;
  f.data["total_bytes"] = space->total_bytes;
  f.data["writable"] = space->writable;
  const std::string elsewhere = use == "cache" ? "set TRAINHOST_CACHE to another directory"
                                               : "work in another directory, or set output.dir";
  if (!space->writable) {
    f.state = State::kWarning;
    f.value += ", not writable";
    f.hint = elsewhere;
  } else if (space->free_bytes < 64 * kMiB) {
    f.state = State::kError;
    f.hint = "the disk is full: remove files, or " + elsewhere;
  } else if (use != "cache" && space->free_bytes < 10 * kGiB) {
    f.state = State::kWarning;
    f.hint = "checkpoints of a model of 1B parameters have 16 GB: remove files, or " + elsewhere;
  }
  return f;
}

}  // namespace trainhost::machine
