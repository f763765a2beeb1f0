// Ctrl-C, SIGTERM and SIGUSR1 as a flag that the training loop reads between steps. A second signal of the
// same kind ends the process at once, as it would have without us.
#pragma once

namespace trainhost::training {

/// Catches the stop signals while it lives; restores what was there before.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  /// Which signal came, 0 = none yet.
  static int received();
};

}  // namespace trainhost::training
