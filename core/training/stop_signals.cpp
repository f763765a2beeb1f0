// See stop_signals.hpp. The handler only stores to an atomic; the kernel restores the default action.
#include "core/training/stop_signals.hpp"

#include <signal.h>

#include <array>
#include <atomic>

namespace trainhost::training {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGUSR1};
std::atomic<int> g_received{0};
std::array<struct sigaction, kSignals.size()> g_previous;

void on_signal(int which) { g_received.store(which, std::memory_order_relaxed); }

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second signal has its default effect
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_previous[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &g_previous[i], nullptr);
}

int StopSignals::received() { return g_received.load(std::memory_order_relaxed); }

}  // namespace trainhost::training
