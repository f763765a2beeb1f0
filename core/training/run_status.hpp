// status.json of a run folder: how the last life of the run ended. A process that is killed cannot write its
// end, so the next start compares what was noted at the start (boot, counters of the kernel's OOM killer)
// with what is there now and names the cause.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/error.hpp"

namespace trainhost::training {

/// Why the last run in `dir` ended without writing its end, as a sentence; nullopt if it did write it, or if
/// there was none. Must be called with the folder locked, before write_running().
std::optional<std::string> cause_of_last_end(const std::filesystem::path& dir);

/// Notes that this process trains in `dir`.
void write_running(const std::filesystem::path& dir);
/// Notes the end: `state` is "finished", "stopped" or "failed"; `reason` is a sentence or "".
void write_ended(const std::filesystem::path& dir, const std::string& state, Exit code,
                 const std::string& reason);

/// How the last run in a folder stands, for readers.
struct RunState {
  /// "running", "finished", "stopped", "failed"; "killed": its process is gone without having written its end;
  /// "": the folder has no status.
  std::string state, reason;
};
RunState run_state(const std::filesystem::path& dir);

}  // namespace trainhost::training
