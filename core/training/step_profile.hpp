// Profiling a run (`train --profile`): reads the trainer's records after every step, adds them up by kind and
// layer, looks at memory at the moments of a step, and writes the first steps of the run as a trace.
//
// The trace holds whole steps, at most ten of them, and no more once it has 200,000 operations; it begins
// with the second step, because the first one touches pages for the first time, unless there is only one. The
// sums leave the first step out in the same way. A step pays for two clock readings an operation and a look
// at memory a phase, nothing else; everything here happens between steps, in memory that does not grow with
// their number.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/planning/host_buffers.hpp"
#include "core/planning/plan_result.hpp"
#include "core/plugin/ledger.hpp"
#include "core/plugin/plugin.hpp"
#include "core/process/host_info.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/chrome_trace.hpp"
#include "core/training/profile_result.hpp"
#include "core/training/trace_file.hpp"

namespace trainhost::training {

class StepProfile {
 public:
  /// Claims `file` and asks the trainer. Throws usage_error when there can be no file, or the trainer cannot
  /// be profiled.
  StepProfile(const std::filesystem::path& file, const runfile::RunConfig& c, plugin::Trainer& trainer,
              plugin::Ledger& ledger);

  /// Begins with the next step of `steps` in all. The session must outlive this.
  void start(plugin::Session& session, std::uint64_t steps);
  /// After each step: its number, counted from 1, and the host's clock around it.
  void step(std::uint64_t number, std::uint64_t start_ns, std::uint64_t end_ns);
  /// Stops, publishes the trace, and says what was found. `plan`: the trainer's own.
  ProfileResult finish(const planning::Estimate& plan);

 private:
  struct Look {
    std::uint64_t at_ns, held_bytes, resident_bytes;
  };
  void reached(plugin::StepMoment m, std::uint32_t micro, std::uint64_t live_bytes);
  void add(const plugin::OpTiming& t);
  bool tracing() const;
  void describe_peak(const planning::Estimate& plan);

  const runfile::RunConfig& c_;
  plugin::Trainer& trainer_;
  plugin::Ledger& ledger_;
  TraceFile file_;
  ChromeTrace trace_;
  ResidentMeter meter_;
  std::uint64_t record_bytes_ = 0, steps_ = 0, steps_seen_ = 0;
  ProfileResult view_;
  std::array<Look, 64> looks_{};  // of this step, as many as there is room for: a step allocates nothing
  std::size_t looks_count_ = 0;
  std::optional<planning::HostBlock> records_;
  std::unique_ptr<plugin::Profiler> profiler_;  // goes before the records
};

/// CLOCK_MONOTONIC.
std::uint64_t now_ns();

}  // namespace trainhost::training
