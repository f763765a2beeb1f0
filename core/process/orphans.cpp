// See orphans.hpp. PR_SET_CHILD_SUBREAPER is the process's: it is set while any watch lives, and put back
// then.
#include "core/process/orphans.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "core/base/directory.hpp"
#include "core/process/process_id.hpp"

namespace trainhost {
namespace {

namespace fs = std::filesystem;

/// How long a killed process may take to die (it may sit in an uninterruptible system call).
constexpr std::chrono::seconds kOrphanDeadline{5};

struct Shared {
  std::mutex mutex;
  int watches = 0, before = 0;
  std::set<pid_t> leaders;
};
Shared& shared() {
  static Shared s;
  return s;
}

/// Children of every thread of this process; empty where the kernel does not list them.
std::vector<pid_t> children() {
  std::vector<pid_t> out;
  std::error_code failed;
  for (const std::string& thread : names_in_directory("/proc/self/task", failed)) {
    std::ifstream in("/proc/self/task/" + thread + "/children");
    for (pid_t pid; in >> pid;) out.push_back(pid);
  }
  return out;
}

bool marked(pid_t pid, const std::string& entry) {
  const std::string all = file_of_process(pid, "environ");
  return (std::string(1, '\0') + all).find(std::string(1, '\0') + entry + '\0') != std::string::npos;
}

/// Whether the kernel has begun to tear the process down (PF_EXITING), or has finished (a zombie). Such a
/// process has no environment left, so it cannot be recognised by its mark, but its children become ours when
/// it is dead.
bool exiting(pid_t pid) {
  constexpr unsigned long kPfExiting = 0x4;  // linux/sched.h
  const std::string all = file_of_process(pid, "stat");
  const std::size_t name_end = all.rfind(')');  // the name, the second field, may hold spaces and parentheses
  if (name_end == std::string::npos) return false;
  std::istringstream rest(all.substr(name_end + 1));
  std::string state, skipped;
  unsigned long flags = 0;
  rest >> state;
  for (int i = 0; i < 5; ++i) rest >> skipped;  // ppid, pgrp, session, tty, tpgid
  rest >> flags;
  return state == "Z" || state == "X" || (flags & kPfExiting) != 0;
}

bool killed_by_us(int wait_status) { return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL; }

}  // namespace

OrphanWatch::OrphanWatch() {
  std::lock_guard lock(shared().mutex);
  if (shared().watches++ > 0) return;
  ::prctl(PR_GET_CHILD_SUBREAPER, &shared().before);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

OrphanWatch::~OrphanWatch() {
  std::lock_guard lock(shared().mutex);
  shared().leaders.erase(leader_);
  if (--shared().watches == 0) ::prctl(PR_SET_CHILD_SUBREAPER, shared().before);
}

void OrphanWatch::lead(const std::function<pid_t()>& start) {
  std::lock_guard lock(shared().mutex);
  shared().leaders.insert(leader_ = start());
}

// SIGKILL is asynchronous: between the signal and the process's death it has no environment (no mark), cannot
// be reaped, and its own children are not ours yet. So every process that is known to be on its way out is
// waited for, and the search ends only after two rounds that found nothing: the kernel's list of children may
// miss entries while it changes.
unsigned OrphanWatch::kill_all(const std::string& mark) {
  std::lock_guard lock(shared().mutex);
  assert(leader_ > 0);
  shared().leaders.erase(leader_);
  std::string entry = kChildMark;
  entry.append("=").append(mark);
  const auto deadline = std::chrono::steady_clock::now() + kOrphanDeadline;
  unsigned killed = 0;
  for (int quiet_rounds = 0; quiet_rounds < 2 && std::chrono::steady_clock::now() < deadline;) {
    bool found = false, reaped = false;
    const auto reap = [&](pid_t which) {  // 0: it exists and is not dead yet
      int status = 0;
      const pid_t pid = ::waitpid(which, &status, WNOHANG);
      if (pid > 0) reaped = true, killed += killed_by_us(status);
      found = found || pid >= 0;
      return pid;
    };
    // The leader's process group. The leader has been reaped, so its children are ours.
    pid_t in_group;
    while ((in_group = reap(-leader_)) > 0) {
    }
    if (in_group == 0) ::kill(-leader_, SIGKILL);
    for (pid_t pid : children()) {
      const pid_t group = ::getpgid(pid);
      // Leaders and their groups belong to the watches that started them; what the rest of this program
      // starts stays in our own group.
      if (group == leader_ || shared().leaders.count(pid) || shared().leaders.count(group)) continue;
      if (marked(pid, entry)) {
        ::kill(pid, SIGKILL);
        reap(pid);
      } else if (group != ::getpgrp() && exiting(pid)) {
        reap(pid);
      }
    }
    quiet_rounds = found ? 0 : quiet_rounds + 1;
    if (found && !reaped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return killed;
}

}  // namespace trainhost
