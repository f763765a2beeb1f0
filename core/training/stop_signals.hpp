// Turns SIGINT (Ctrl-C), SIGTERM and SIGUSR1 into a flag that the training loop reads between steps. A second
// signal of the same kind has its default effect and ends the process.
#pragma once

namespace trainhost::training {

/// Catches the stop signals during its lifetime; the destructor restores the previous handlers.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  /// The number of the signal received, 0 = none.
  static int received();
};

}  // namespace trainhost::training
