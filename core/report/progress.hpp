// Progress of a training run: one live line on a terminal, which is rewritten in place; elsewhere plain lines
// at growing intervals. Never writes to stdout.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/report/status_line.hpp"
#include "core/report/terminal.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::report {

class Progress {
 public:
  enum class Mode { kSilent, kPlain, kLive };
  using Write = std::function<void(const std::string&)>;
  /// `write`: gets complete lines, or with kLive the codes and texts for the terminal on stderr.
  Progress(Mode mode, Terminal terminal, Write write);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;

  void step(const training::StepProgress& step);
  /// See training::RunObserver::phase(). Shown once the phase has taken half a second; in a log, 2 s.
  void phase(std::string_view name, std::uint64_t done_bytes, std::uint64_t total_bytes);
  /// Prints a complete line (evaluation, checkpoint, note) above the live line.
  void print_line(const std::string& text);
  /// Removes the live line.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool step_is_due(bool ends, Clock::time_point now) const;
  void end_phase();
  void draw();

  Mode mode_;
  Terminal terminal_;
  Write write_;
  StatusLine status_;
  std::uint64_t lines_ = 0;
  Clock::time_point last_{};
  unsigned shown_columns_ = 0;  // of the live line; 0: none is shown
  bool shows_steps_ = false;    // else a phase

  PhaseLine phase_;
  std::string phase_name_;  // "" = none
  bool phase_shown_ = false;
  Clock::time_point phase_start_{}, phase_last_{};
};

}  // namespace trainhost::report
