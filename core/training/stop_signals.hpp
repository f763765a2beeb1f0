// Turns the signals that ask a process to end into a flag that a run reads between operations: SIGINT
// (Ctrl-C), SIGTERM, SIGHUP (the terminal was closed), SIGUSR1 and SIGUSR2 (job schedulers announce the end
// of the time limit) and SIGXCPU (the limit of CPU time). The first signal is acknowledged on stderr at once;
// a second one ends the process.
#pragma once
#include <string_view>

namespace trainhost::training {

/// Catches the stop signals during its lifetime; the destructor restores the previous handlers. SIGHUP
/// stays ignored under nohup. One object at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;

  /// The number of the signal received, 0 = none.
  static int received();
  /// "SIGTERM"; "no signal" for 0.
  static const char* name(int signal);
  /// What the first signal leads to, for the line that it prints: "stopping with a checkpoint". A literal.
  static void set_consequence(const char* text);
  /// Whether the lines are printed; not by the ranks of a run but the first. True at the start.
  static void set_prints(bool prints);
  /// What is saved and what is lost after a second signal, for the line that it prints: "the checkpoint of
  /// step 100 is saved, 3 steps after it are lost". Longer than 200 bytes is truncated.
  static void set_result(std::string_view text);
};

}  // namespace trainhost::training
