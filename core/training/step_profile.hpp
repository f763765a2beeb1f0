// Profiles a run (`train --profile`): after every step it reads the trainer's timing records and sums them by
// kind and layer; at the phases of a step it measures memory; it writes the first steps as a Chrome trace.
//
// The trace has complete steps: at most ten, and no further step after 200,000 operations. Trace and sums
// omit the first step, which has page faults, unless it is the only one. During a step the cost is two clock
// readings per operation and one memory measurement per phase. Memory does not grow with the number of steps.
//
// If a run has several ranks, each is profiled. Those after the first keep their part of the trace in memory,
// which is a share of the operations of one trace, until the first one writes it to the file.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/checkpoint/output_file.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/planning/plan_result.hpp"
#include "core/plugin/ledger.hpp"
#include "core/plugin/plugin.hpp"
#include "core/process/host_info.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/chrome_trace.hpp"
#include "core/training/profile_result.hpp"

namespace trainhost::training {

class StepProfile {
 public:
  /// Rank 0 creates a temporary file next to `file`. Throws usage_error if `file` cannot be written or the
  /// trainer does not time its operations.
  StepProfile(const std::filesystem::path& file, const runfile::RunConfig& c, plugin::Trainer& trainer,
              plugin::Ledger& ledger, std::uint32_t rank, std::uint32_t ranks);
  /// The time that counts as 0 in the trace, at which all ranks call this.
  void set_origin(std::uint64_t at_ns) { trace_.set_origin(at_ns); }

  /// Starts with the next of `steps` steps. The session must outlive this object.
  void start(plugin::Session& session, std::uint64_t steps);
  /// To be called after each step: its number, counted from 1, and the host's clock before and after it.
  void step(std::uint64_t number, std::uint64_t start_ns, std::uint64_t end_ns);
  /// Stops profiling. `plan`: that of the trainer.
  ProfileResult finish(const planning::Estimate& plan);
  /// After finish(), of a rank after the first: its part of the trace.
  std::string take_trace() { return std::move(trace_text_); }
  /// After finish(), of the first rank: appends the parts of the others in their order, then publishes.
  void append(const std::string& trace_of_rank) { file_->write(trace_of_rank); }
  void publish();

 private:
  struct MemorySample {
    std::uint64_t at_ns, held_bytes, resident_bytes;
  };
  void phase_reached(plugin::StepBoundary m, std::uint32_t micro, std::uint64_t live_bytes);
  void add_operation(const plugin::OpTiming& t);
  bool trace_this_step() const;
  void write_trace();
  void describe_peak(const planning::Estimate& plan);

  const runfile::RunConfig& c_;
  plugin::Trainer& trainer_;
  plugin::Ledger& ledger_;
  std::optional<checkpoint::OutputFile> file_;  // of rank 0
  std::string trace_text_;                      // of other ranks
  ChromeTrace trace_;
  std::uint64_t most_traced_ops_;
  ResidentMeter meter_;
  std::uint64_t record_bytes_ = 0, planned_steps_ = 0, profiled_steps_ = 0;
  ProfileResult result_;
  /// Of the current step. Further samples are dropped, because a step must not allocate.
  std::array<MemorySample, 64> samples_{};
  std::size_t sample_count_ = 0;
  std::optional<planning::HostBlock> records_;
  std::unique_ptr<plugin::Profiler> profiler_;  // declared after records_: it must be destroyed first
};

/// CLOCK_MONOTONIC.
std::uint64_t now_ns();

}  // namespace trainhost::training
