// The messages and the progress of one process of a run in a file of its folder, as a run without a terminal
// prints them: run.log of every run, and rank_N.log of each process with `train --log-ranks`. Each message
// begins with the time in UTC.
#pragma once
#include <string>

#include "core/report/run_reporter.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::report {

class RankLog final : public training::ForwardingObserver {
 public:
  /// `name`: of the file. `process`: the first line, "rank 3 of 4 on host-a, process 1234".
  RankLog(std::string name, const std::string& process, training::RunObserver& next);
  ~RankLog();

  /// Writes why this process ends.
  void failed(const std::string& message) { log_.message("error: " + message); }

  void message(const std::string& text) override { log_.message(text), next_.message(text); }
  void step(const training::StepProgress& p) override { log_.step(p), next_.step(p); }
  void phase(std::string_view what, std::uint64_t done_bytes, std::uint64_t total_bytes) override {
    log_.phase(what, done_bytes, total_bytes), next_.phase(what, done_bytes, total_bytes);
  }
  void planned(const planning::PlanResult& plan) override { log_.planned(plan), next_.planned(plan); }
  /// Creates the file, or appends to it, and writes what was reported before. Throws run_error if the file
  /// cannot be opened; later a line that cannot be written is left out.
  void begun(const std::filesystem::path& folder, bool resumed) override;
  void profiled(const training::ProfileResult& p) override { log_.profiled(p), next_.profiled(p); }
  void measured(const training::MemoryResult& m) override { log_.measured(m), next_.measured(m); }
  void steps_ended() override { log_.steps_ended(), next_.steps_ended(); }
  void sample(std::uint64_t step, const std::string& text) override {
    log_.sample(step, text), next_.sample(step, text);
  }

 private:
  void write(const std::string& text);
  void append(const std::string& messages);
  std::string name_;
  int file_ = -1;
  std::string before_;  // lines of the time before begun()
  RunReporter log_;
};

}  // namespace trainhost::report
