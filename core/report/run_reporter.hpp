// Prints a training run: plan, progress, messages, profile, and predicted and measured memory.
#pragma once
#include <filesystem>
#include <string>
#include <utility>

#include "core/report/progress.hpp"
#include "core/report/terminal.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::report {

class RunReporter : public training::RunObserver {
 public:
  /// On stderr.
  explicit RunReporter(bool quiet);
  RunReporter(Progress::Mode mode, Terminal terminal, Progress::Write write)
      : terminal_(terminal), progress_(mode, terminal, std::move(write)) {}
  void message(const std::string& text) override { progress_.print_line(text); }
  void step(const training::StepProgress& p) override { progress_.step(p); }
  void phase(std::string_view what, std::uint64_t done_bytes, std::uint64_t total_bytes) override {
    progress_.phase(what, done_bytes, total_bytes);
  }
  void planned(const planning::PlanResult& plan) override;
  void profiled(const training::ProfileResult& profile) override;
  void measured(const training::MemoryResult& memory) override;
  void begun(const std::filesystem::path&, bool) override {}
  void steps_ended() override { progress_.clear(); }
  void sample(std::uint64_t step, const std::string& text) override;
  void ended() override {}
  std::string plan_json(const planning::PlanResult& plan) const override;
  std::string recompute_json(const planning::PlanResult& plan) const override;
  std::string profile_json(const training::ProfileResult& profile) const override;

 private:
  Terminal terminal_;
  Progress progress_;
};

/// Predicted, measured and process memory: three lines.
std::string memory_lines(const training::MemoryResult& m, const Terminal& t);

}  // namespace trainhost::report
