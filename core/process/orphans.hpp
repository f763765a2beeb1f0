// Kills the processes that a child process has left running. While a watch exists they are reparented to this
// process instead of init (subreaper). They are recognised by their process group and by a mark in their
// environment; a process that left both its session and its environment behind is not recognised. Linux only.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>

namespace trainhost {

/// The variable whose value marks every descendant of one child.
inline constexpr const char* kChildMark = "TRAINHOST_CHILD";

class OrphanWatch {
 public:
  OrphanWatch();
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;

  /// Calls `start`, which forks the leader of a new process group and returns its pid. Only the caller reaps
  /// the leader: no other watch takes its exit status.
  void lead(const std::function<pid_t()>& start);

  /// Kills and reaps every process of the leader's group and every descendant whose environment carries
  /// `mark`. Call it after the leader has been reaped. Returns when none is left, or after 5 s. Returns how
  /// many processes were killed, those included that the caller's signal to the group killed.
  unsigned kill_all(const std::string& mark);

 private:
  pid_t leader_ = 0;
};

}  // namespace trainhost
