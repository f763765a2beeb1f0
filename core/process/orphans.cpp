// See orphans.hpp. PR_SET_CHILD_SUBREAPER is the process's: it is set while any watch lives, and put back
// then.
#include "core/process/orphans.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <vector>

namespace trainhost {
namespace {

namespace fs = std::filesystem;

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
  for (fs::directory_iterator it("/proc/self/task", failed), end; !failed && it != end;
       it.increment(failed)) {
    std::ifstream in(it->path() / "children");
    for (pid_t pid; in >> pid;) out.push_back(pid);
  }
  return out;
}

bool marked(pid_t pid, const std::string& entry) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  return (std::string(1, '\0') + all).find(std::string(1, '\0') + entry + '\0') != std::string::npos;
}

/// A dead process has no environment left to be known by. One outside our process group that nobody here
/// started is a child's child: what the rest of the program starts stays in our group.
bool adopted(pid_t pid) { return ::getpgid(pid) != ::getpgrp() && !shared().leaders.count(pid); }

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

/// A killed one's own children become ours in turn: so again, until a round finds nobody.
unsigned OrphanWatch::kill_all(const std::string& mark) {
  std::lock_guard lock(shared().mutex);
  shared().leaders.erase(leader_);
  const std::string entry = std::string(kChildMark) + "=" + mark;
  unsigned killed = 0;
  for (bool found = true; found;) {
    found = false;
    for (pid_t pid : children()) {
      if (marked(pid, entry) && !shared().leaders.count(pid)) {
        found = true, ++killed;
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      } else if (adopted(pid)) {
        found = ::waitpid(pid, nullptr, WNOHANG) == pid || found;
      }
    }
  }
  return killed;
}

}  // namespace trainhost
