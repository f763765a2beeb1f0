// See launch_watch.hpp. The processes of a launcher on this machine are children of its process there. A
// thread looks at them; the handler of SIGTERM wakes it by a pipe.
#include "core/process/launch_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/directory.hpp"
#include "core/process/process_id.hpp"

namespace trainhost {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kLookMs = 50;
constexpr std::chrono::milliseconds kForLauncher{4000};  // it ends the others, which is reported better
constexpr std::chrono::milliseconds kTurn{1500};         // the lowest rank prints first: usually one message
// After SIGTERM, until the other processes of the launcher have looked at this one.
constexpr std::chrono::milliseconds kForOthers{100};

std::atomic<int> g_wake{-1};  // the writing end of the pipe

void on_terminate(int) {
  const int saved = errno;
  [[maybe_unused]] const ssize_t n = ::write(g_wake, "t", 1);
  errno = saved;
}

/// Children of all threads of a process; none where the system does not list them.
std::vector<std::int32_t> children_of(std::int32_t parent) {
  const std::string threads = "/proc/" + std::to_string(parent) + "/task";
  std::vector<std::int32_t> all;
  std::error_code failed;
  for (const std::string& thread : names_in_directory(threads, failed)) {
    std::ifstream in(threads + "/" + thread + "/children");
    for (std::int32_t child; in >> child;) all.push_back(child);
  }
  return all;
}

/// A variable of the environment with which a process was started.
std::optional<std::uint32_t> number_of(std::int32_t process, const std::string& variable) {
  const std::string key = std::string(1, '\0') + variable + "=";
  const std::string all = std::string(1, '\0') + file_of_process(process, "environ");
  const std::size_t at = all.find(key);
  if (at == all.npos) return std::nullopt;
  return static_cast<std::uint32_t>(std::strtoul(all.c_str() + at + key.size(), nullptr, 10));
}

}  // namespace

struct LaunchWatch::State {
  State(std::string of, std::uint32_t own, bool all) : variable(std::move(of)), rank(own), all_here(all) {}

  std::string variable;
  std::uint32_t rank;
  bool all_here;
  std::int32_t launcher = static_cast<std::int32_t>(::getppid());
  std::map<std::uint32_t, ProcessId> others;  // by rank
  int pipe[2] = {-1, -1};
  struct sigaction before {};
  bool catches = false;
  std::thread thread;

  void find_others() {
    for (const std::int32_t child : children_of(launcher)) {
      const std::optional<std::uint32_t> r = number_of(child, variable);
      const std::optional<ProcessId> p = r && *r != rank ? process_with(child) : std::nullopt;
      if (p && !has_ended(*p)) others.emplace(*r, *p);
    }
  }

  /// A rank that has ended; nullopt if there is none, as after Ctrl-C. Launchers start the ranks in order:
  /// one below another that was never seen has ended before this process looked.
  std::optional<std::uint32_t> ended_rank(bool terminated) const {
    for (const auto& [r, process] : others)
      if (has_ended(process)) return r;
    const std::uint32_t highest = others.empty() ? rank : std::max(rank, others.rbegin()->first);
    for (std::uint32_t r = 0; terminated && all_here && r < highest; ++r)
      if (r != rank && !others.contains(r)) return r;
    return std::nullopt;
  }

  void print(std::uint32_t ended) const {
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    const auto seen = others.find(ended);
    const std::string process =
        seen == others.end() ? "" : " (process " + std::to_string(seen->second.id) + ")";
    std::fprintf(stderr,
                 "trainhost: rank %u on %s: rank %u on this machine has ended%s while the ranks were being "
                 "connected\n",
                 rank, host, ended, process.c_str());
    std::fflush(stderr);
  }

  [[noreturn]] void end_process(bool terminated) const {
    if (!terminated) std::_Exit(1);
    ::sigaction(SIGTERM, &before, nullptr);
    ::kill(::getpid(), SIGTERM);
    for (;;) ::pause();
  }

  void watch() {
    auto since = Clock::time_point::max();  // when another process was first seen to have ended
    for (;;) {
      pollfd waits{pipe[0], POLLIN, 0};
      char word = 0;
      if (::poll(&waits, 1, kLookMs) > 0 && ::read(pipe[0], &word, 1) == 1 && word == 'e') return;
      const bool terminated = word == 't';
      find_others();
      const std::optional<std::uint32_t> ended = ended_rank(terminated);
      if (ended && since == Clock::time_point::max()) since = Clock::now();
      if (terminated || (since != Clock::time_point::max() && Clock::now() - since > kForLauncher)) {
        const bool first =
            std::ranges::all_of(others, [&](const auto& o) { return o.first > rank || has_ended(o.second); });
        // A process that goes on connecting after SIGTERM can keep mpirun (Open MPI 4.1) from ending.
        if (!terminated && !first) std::this_thread::sleep_for(kTurn);
        if (ended && (first || !terminated)) print(*ended);
        if (terminated) std::this_thread::sleep_for(kForOthers);
        end_process(terminated);
      }
    }
  }
};

LaunchWatch::LaunchWatch(std::string variable, std::uint32_t rank, bool all_here)
    : state_(new State(std::move(variable), rank, all_here)) {
  if (::pipe2(state_->pipe, O_CLOEXEC) != 0) return;  // the launcher reports alone
  state_->find_others();
  g_wake = state_->pipe[1];
  ::sigaction(SIGTERM, nullptr, &state_->before);
  state_->catches = state_->before.sa_handler == SIG_DFL;
  struct sigaction action {};
  action.sa_handler = on_terminate, action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (state_->catches) ::sigaction(SIGTERM, &action, nullptr);
  state_->thread = std::thread([s = state_] { s->watch(); });
}

LaunchWatch::~LaunchWatch() {
  if (state_->thread.joinable()) {
    [[maybe_unused]] const ssize_t n = ::write(state_->pipe[1], "e", 1);
    state_->thread.join();
    if (state_->catches) ::sigaction(SIGTERM, &state_->before, nullptr);
    g_wake = -1;
    ::close(state_->pipe[0]), ::close(state_->pipe[1]);
  }
  delete state_;
}

}  // namespace trainhost
