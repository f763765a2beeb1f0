// Progress of a training run on stderr: one live line on a terminal; elsewhere plain lines at growing
// intervals. Never writes to stdout.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "core/report/terminal.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::report {

class Progress {
 public:
  enum class Mode { kSilent, kPlain, kLive };
  Progress(Mode mode, Terminal terminal) : mode_(mode), terminal_(terminal) {}
  ~Progress() { clear(); }

  void step(const training::StepProgress& line);
  /// Prints a complete line (evaluation, checkpoint, note) above the live line.
  void print_line(const std::string& text);
  /// Removes the live line.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool due(const training::StepProgress& line, Clock::time_point now) const;
  Mode mode_;
  Terminal terminal_;
  bool live_shown_ = false;
  std::uint64_t lines_ = 0;
  Clock::time_point last_{};
};

}  // namespace trainhost::report
