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
  /// Text that the model has generated after `step`.
  virtual void sample(std::uint64_t step, const std::string& text) = 0;
  /// The last call: the files of the run are complete, also where it was stopped or has failed.
  virtual void ended() = 0;

  /// JSON objects for metrics.jsonl and summary.json, in the schema that `plan --json` uses.
  virtual std::string plan_json(const planning::PlanResult& plan) const = 0;
  virtual std::string recompute_json(const planning::PlanResult& plan) const = 0;
  virtual std::string profile_json(const ProfileResult& profile) const = 0;
};

/// Passes everything on to another observer. Base of those that do something in addition.
class ForwardingObserver : public RunObserver {
 public:
  /// `next` must outlive it.
  explicit ForwardingObserver(RunObserver& next) : next_(next) {}
  void message(const std::string& text) override { next_.message(text); }
  void step(const StepProgress& p) override { next_.step(p); }
  void phase(std::string_view what, std::uint64_t done_bytes, std::uint64_t total_bytes) override {
    next_.phase(what, done_bytes, total_bytes);
  }
  void planned(const planning::PlanResult& plan) override { next_.planned(plan); }
  void begun(const std::filesystem::path& folder, bool resumed) override { next_.begun(folder, resumed); }
  void profiled(const ProfileResult& profile) override { next_.profiled(profile); }
  void measured(const MemoryResult& memory) override { next_.measured(memory); }
  void steps_ended() override { next_.steps_ended(); }
  void sample(std::uint64_t step, const std::string& text) override { next_.sample(step, text); }
  void ended() override { next_.ended(); }
  std::string plan_json(const planning::PlanResult& plan) const override { return next_.plan_json(plan); }
  std::string recompute_json(const planning::PlanResult& plan) const override {
    return next_.recompute_json(plan);
  }
  std::string profile_json(const ProfileResult& profile) const override {
    return next_.profile_json(profile);
  }

 protected:
  RunObserver& next_;
};

}  // namespace trainhost::training
