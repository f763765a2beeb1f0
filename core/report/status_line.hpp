// The texts of a run's progress: of its steps, as one line that fits the terminal and as a line of a log, and
// of a long phase before the first step. Pure functions of what was added; progress.hpp decides when they are
// shown.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "core/report/fitted_line.hpp"
#include "core/report/sparkline.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::report {

class StatusLine {
 public:
  /// Every step of the run, shown or not: loss is smoothed, and its course is drawn.
  void add(const training::StepProgress& step);
  /// For a terminal: bar, step, smoothed loss and its course, tokens per second, ranks, ETA, memory, and more
  /// where there is space.
  FittedLine::Text fitted(const Terminal& t, unsigned columns);
  /// For a log, with the loss of the last step.
  std::string plain() const;

 private:
  training::StepProgress last_;
  History losses_;
  double loss_ = 0, weight_ = 0;  // smoothed; sum of the weights so far
  FittedLine::Padding padding_;
};

/// A phase of a start: reading, tokenizing, loading. Times since it began, in seconds.
class PhaseLine {
 public:
  void add(std::string name, std::uint64_t done_bytes, std::uint64_t total_bytes, double seconds);
  FittedLine::Text fitted(const Terminal& t, unsigned columns);
  /// "tokenizing big.txt: 45 %, 120 MiB of 270 MiB, ETA 0:05"
  std::string plain() const;

 private:
  double share() const;
  std::string eta() const;
  std::string name_;
  std::uint64_t done_ = 0, total_ = 0;
  double seconds_ = 0;
  FittedLine::Padding padding_;
};

}  // namespace trainhost::report
