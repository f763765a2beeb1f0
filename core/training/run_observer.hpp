// Receives what a run reports to the user while it trains. Training decides what is reported and when; the
// implementation in core/report/run_reporter.hpp decides how it looks. JSON events are written by events.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/planning/plan_result.hpp"
#include "core/training/memory_result.hpp"
#include "core/training/profile_result.hpp"

namespace trainhost::training {

/// Of a run of several processes, averaged over the last steps.
struct RankProgress {
  std::uint32_t count = 1;
  double wait_share = 0;      // of the time of a step that a rank waits for others, on average
  std::uint32_t slowest = 0;  // the rank that computes longest
  double slowest_excess = 0;  // by which share it computes longer than the mean of the ranks
};

struct StepProgress {
  std::uint64_t step = 0, steps = 0;  // step counts from 1
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_s = 0;    // smoothed; of all ranks
  std::optional<double> mfu;  // model FLOP/s as a share of the measured peak rate
  double eta_s = 0;
  std::uint64_t memory_bytes = 0;     // in use in the tier that computes, by the ledger
  std::optional<RankProgress> ranks;  // of several
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void message(const std::string& text) = 0;  // complete lines
  virtual void step(const StepProgress& progress) = 0;
  /// How far a phase before the first step is (`what`: "tokenizing big.txt"). It begins with the first call
  /// and ends when `done_bytes` is `total_bytes`, or with a call of another phase. Called often.
  virtual void phase(std::string_view what, std::uint64_t done_bytes, std::uint64_t total_bytes) = 0;
  virtual void planned(const planning::PlanResult& plan) = 0;
  /// The folder of the run is ready, and cleared unless the run is resumed: the first step follows. On every
  /// process of the run.
  virtual void begun(const std::filesystem::path& folder, bool resumed) = 0;
  virtual void profiled(const ProfileResult& profile) = 0;
  virtual void measured(const MemoryResult& memory) = 0;
  virtual void steps_ended() = 0;  // no step() follows; removes a live progress line

  /// JSON objects for metrics.jsonl and summary.json, in the schema that `plan --json` uses.
  virtual std::string plan_json(const planning::PlanResult& plan) const = 0;
  virtual std::string recompute_json(const planning::PlanResult& plan) const = 0;
  virtual std::string profile_json(const ProfileResult& profile) const = 0;
};

}  // namespace trainhost::training
