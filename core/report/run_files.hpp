// The files of a run that people look at: samples.jsonl and, at the end, report.html. A failure to write one
// of them is reported and never ends a run.
#pragma once
#include <filesystem>
#include <string>

#include "core/training/run_observer.hpp"

namespace trainhost::report {

class RunFiles final : public training::ForwardingObserver {
 public:
  /// Of the first process of a run. `report`: whether report.html is written. `command`: the command line.
  RunFiles(bool report, std::string command, training::RunObserver& next)
      : ForwardingObserver(next), report_(report), command_(std::move(command)) {}
  void begun(const std::filesystem::path& folder, bool resumed) override;
  void sample(std::uint64_t step, const std::string& text) override;
  void ended() override;

 private:
  bool report_;
  std::string command_;
  std::filesystem::path folder_;  // "" until the run has begun
};

}  // namespace trainhost::report
