// See signals.hpp. The handler writes one atomic and restores the default action, nothing else.
#include "core/training/signals.hpp"

#include <signal.h>

#include <array>
#include <atomic>

namespace trainhost::training {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGUSR1};
std::atomic<int> g_received{0};
std::array<struct sigaction, kSignals.size()> g_before;

void on_signal(int which) { g_received.store(which, std::memory_order_relaxed); }

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one acts as if we were not here
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

int StopSignals::received() { return g_received.load(std::memory_order_relaxed); }

}  // namespace trainhost::training
