// Processes that a child left behind. While a watch lives they become ours instead of the init process's, are
// known by a word in their environment, and are killed. One that both leaves its session and starts a program
// with a cleared environment is not recognised. Linux only.
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

  /// Starts the one process that only the caller reaps: its status is safe from other watches from the first
  /// moment.
  void lead(const std::function<pid_t()>& start);

  /// After the leader has been reaped: kills every process of ours whose mark is `mark`, and reaps what was
  /// adopted, until none is left. How many were alive.
  unsigned kill_all(const std::string& mark);

 private:
  pid_t leader_ = 0;
};

}  // namespace trainhost
