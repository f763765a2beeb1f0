// A process of this machine, and whether it has ended.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trainhost {

/// The time of its start tells it from another process with its number.
struct ProcessId {
  std::int32_t id = 0;
  std::uint64_t start = 0;  // in ticks since the machine started; 0: unknown
};

/// The content of /proc/ID/NAME: "stat". "" if there is no such process, or it ends while the file is read,
/// which a stream with iterators reports by an exception.
std::string file_of_process(std::int32_t id, const char* name);
/// The process with that number; nullopt if there is none, or it cannot be seen.
std::optional<ProcessId> process_with(std::int32_t id);
/// This process.
ProcessId own_process();
/// True if the process has ended; a zombie, which its parent has not waited for, has ended too.
bool has_ended(const ProcessId& p);
/// Why a process has ended: "exit code 1", "signal 9: Killed". "" while it runs, if its parent has waited for
/// it, or if it belongs to another user.
std::string reason_of_end(const ProcessId& p);

}  // namespace trainhost
