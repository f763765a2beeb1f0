// See stop_signals.hpp. The handler uses only atomics and async-signal-safe calls. The text that it prints is
// prepared outside of it: set_result() fills the buffer that the handler does not read, then exchanges the
// two.
#include "core/training/stop_signals.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace trainhost::training {
namespace {

struct StopSignal {
  int number;
  const char* name;
};
constexpr std::array<StopSignal, 6> kSignals = {{{SIGINT, "SIGINT"},
                                                 {SIGTERM, "SIGTERM"},
                                                 {SIGHUP, "SIGHUP"},
                                                 {SIGUSR1, "SIGUSR1"},
                                                 {SIGUSR2, "SIGUSR2"},
                                                 {SIGXCPU, "SIGXCPU"}}};
std::array<struct sigaction, kSignals.size()> g_previous;
std::atomic<int> g_received{0};

std::atomic<const char*> g_consequence{"stopping"};
char g_result[2][200];
std::atomic<int> g_current{0};  // index of the text that the handler prints

std::atomic<bool> g_prints{true};

/// Part of a line; a failure is ignored as in write_stderr().
void print(const char* text, std::size_t size) {
  if (!g_prints.load(std::memory_order_relaxed)) return;
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, size);
}
void print(const char* text) { print(text, std::strlen(text)); }

void on_signal(int which) {
  const int saved_errno = errno;
  if (g_received.exchange(which) == 0) {
    print("\ntrainhost: ");
    print(StopSignals::name(which));
    print(": ");
    print(g_consequence.load());
    print("; a second signal ends the run at once\n");
  } else {
    const char* result = g_result[g_current.load()];
    print("\ntrainhost: ended by ");
    print(StopSignals::name(which));
    print("; ");
    print(result, strnlen(result, sizeof g_result[0]));
    print("\n");
    ::signal(which, SIG_DFL);
    ::raise(which);  // takes effect when the handler returns
  }
  errno = saved_errno;
}

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  // The handler of one signal is not interrupted by another one, so that lines are printed whole.
  for (const StopSignal& s : kSignals) sigaddset(&action.sa_mask, s.number);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i].number, nullptr, &g_previous[i]);
    const bool under_nohup = kSignals[i].number == SIGHUP && g_previous[i].sa_handler == SIG_IGN;
    if (!under_nohup) sigaction(kSignals[i].number, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i].number, &g_previous[i], nullptr);
}

int StopSignals::received() { return g_received.load(std::memory_order_relaxed); }

const char* StopSignals::name(int signal) {
  for (const StopSignal& s : kSignals)
    if (s.number == signal) return s.name;
  return "no signal";
}

void StopSignals::set_prints(bool prints) { g_prints = prints; }

void StopSignals::set_consequence(const char* text) { g_consequence = text; }

void StopSignals::set_result(std::string_view text) {
  const int other = 1 - g_current.load();
  char* const to = g_result[other];
  std::memset(to, 0, sizeof g_result[0]);
  std::memcpy(to, text.data(), std::min(text.size(), sizeof g_result[0] - 1));
  g_current = other;
}

}  // namespace trainhost::training
