// Level 7: cancellation, and the thread budget. The host stays cancelled only during the call under test.
#include <atomic>
#include <thread>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

void check_cancelled_step(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch batch = make_batch(i.sample(), plugin.seed());
  // A step without cancellation first: failures of step() itself belong to T-022.
  const StepCallResult first = i.step(batch, 1e-3, 0);
  expect(first.ok(), "step() returned {}", first.text());
  const Tensors before = assembled(i.save().pieces);
  plugin.host().cancel_from_now_on(true);
  const StepCallResult a = i.step(batch, 1e-3, 1);
  plugin.host().cancel_from_now_on(false);
  expect(a.status == TH_E_CANCELLED,
         "step() returned {} although the host had cancelled the run; TH_E_CANCELLED was expected", a.text());
  expect(assembled(i.save().pieces) == before, "step() was cancelled but changed the weights");
}

/// The largest number of threads, sampled every 0.5 ms, without the sampling thread. Threads that live
/// shorter than that are not seen, nor do they compete with anyone.
class ThreadWatch {
 public:
  ThreadWatch()
      : watcher_([this] {
          while (!done_) {
            most_ = std::max(most_.load(), running_threads());
            std::this_thread::sleep_for(std::chrono::microseconds(500));
          }
        }) {}
  unsigned most() {
    done_ = true;
    watcher_.join();
    return most_ > 0 ? most_ - 1 : 0;
  }

 private:
  std::atomic<bool> done_{false};
  std::atomic<unsigned> most_{0};
  std::thread watcher_;
};

void check_thread_budget(WatchedPlugin& plugin) {
  constexpr unsigned kBudget = 2;
  plugin.host().set_threads(kBudget);
  // Before the watch is created, whose thread most() subtracts.
  const unsigned before = running_threads();
  ThreadWatch watch;
  {
    Started started(plugin);
    const Sample s = plugin.sample();
    // Planning may use threads too.
    for (int n = 0; n < 20; ++n) plugin.report(s);
    std::uint32_t devices = 0;
    if (plugin.is_trainer() && plugin.probe(&devices).ok() && devices > 0) {
      WatchedInstance i(plugin, s);
      i.create_and_init();
      for (std::uint64_t n = 0; n < 20; ++n) i.step(make_batch(s, plugin.seed()), 1e-3, n);
    }
    // Threads that start late.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const unsigned most = watch.most(), own = most > before ? most - before : 0;
  // The caller's own thread counts: own + 1.
  expect(own + 1 <= kBudget,
         "it ran {} threads in addition to the caller's; the budget of {} includes the caller's thread", own,
         kBudget);
}

}  // namespace

std::vector<Check> budget_checks() {
  return {
      {"T-070",
       7,
       "A cancelled step returns TH_E_CANCELLED and applies nothing",
       "Ctrl-C requests a checkpoint at once. A trainer calls cancelled() at least every 100 ms of work "
       "and at each step. Fix: call cancelled() before each micro-batch, and return TH_E_CANCELLED before "
       "any weight changes.",
       {"T-022", "T-027"},
       check_cancelled_step},
      {"C-110",
       7,
       "It stays within its thread budget",
       "The budget includes the caller's thread. More threads compete with the host's own threads and "
       "with other runs on the machine. Fix: create at most thread_budget - 1 threads, and set the thread "
       "count of your libraries.",
       {"C-070"},
       check_thread_budget,
       true},
  };
}

}  // namespace trainhost::plugin_validator
