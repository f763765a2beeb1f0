// Progress of a training run on stderr: one live line on a terminal, plain lines that thin out elsewhere.
// Never touches stdout; silent when told so.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/report/terminal.hpp"

namespace trainhost::report {

struct StepLine {
  std::uint64_t step = 0, steps = 0;  // step counts from 1
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_s = 0;    // smoothed
  std::optional<double> mfu;  // share of the measured matrix-product rate
  double eta_s = 0;
};

class Progress {
 public:
  enum class Mode { kSilent, kPlain, kLive };
  Progress(Mode mode, Terminal terminal) : mode_(mode), terminal_(terminal) {}
  ~Progress() { clear(); }

  void step(const StepLine& line);
  /// A full line of its own (eval, checkpoint, note), above the live line.
  void say(const std::string& text);
  /// Removes the live line, if there is one.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool due(const StepLine& line, Clock::time_point now) const;
  Mode mode_;
  Terminal terminal_;
  bool live_shown_ = false;
  std::uint64_t lines_ = 0;
  Clock::time_point last_{};
};

/// "1:05", "2:03:07", "3d 4h".
std::string format_duration(double seconds);
/// "98.1K", "2.31M".
std::string format_rate(double per_second);

}  // namespace trainhost::report
