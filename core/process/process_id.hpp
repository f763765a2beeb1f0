// A process of this machine, and whether it has ended.
#pragma once
#include <cstdint>
#include <optional>

namespace trainhost {

/// The time of its start tells it from another process with its number.
struct ProcessId {
  std::int32_t id = 0;
  std::uint64_t start = 0;  // in ticks since the machine started; 0: unknown
};

/// The process with that number; nullopt if there is none, or it cannot be seen.
std::optional<ProcessId> process_with(std::int32_t id);
/// This process.
ProcessId own_process();
/// True if the process has ended; a zombie, which its parent has not waited for, has ended too.
bool has_ended(const ProcessId& p);

}  // namespace trainhost
