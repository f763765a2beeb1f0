// Level 7: it stops when it is told to, and takes no more threads than it was given.
#include <atomic>
#include <thread>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

void cancels(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch batch = make_batch(i.sample(), b.seed());
  const StepAnswer first = i.step(batch, 1e-3, 0);
  expect(first.ok(), "step() returned {}", first.text());
  const Tensors before = assembled(i.save().pieces);
  b.host().cancel_from_now_on(true);
  const StepAnswer a = i.step(batch, 1e-3, 1);
  b.host().cancel_from_now_on(false);
  expect(a.status == TH_E_CANCELLED,
         "step() returned {} while the host said that the run is cancelled; TH_E_CANCELLED was "
         "expected",
         a.text());
  expect(assembled(i.save().pieces) == before, "step() was cancelled and changed the weights all the same");
}

/// The most threads that ran at once, looked at every half millisecond, less this watcher's own.
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

void keeps_to_its_threads(Bench& b) {
  constexpr unsigned kBudget = 2;
  b.host().set_threads(kBudget);
  const unsigned before = running_threads();
  ThreadWatch watch;
  {
    Started started(b);
    const Sample s = b.sample();
    for (int n = 0; n < 20; ++n) b.report(s);
    std::uint32_t devices = 0;
    if (b.is_trainer() && b.probe(&devices).ok() && devices > 0) {
      Instance i(b, s);
      i.begin();
      for (std::uint64_t n = 0; n < 20; ++n) i.step(make_batch(s, b.seed()), 1e-3, n);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const unsigned most = watch.most(), own = most > before ? most - before : 0;
  expect(own + 1 <= kBudget,
         "it ran {} threads of its own beside the caller's; with a budget of {} one was expected", own,
         kBudget);
}

}  // namespace

std::vector<Check> budget_checks() {
  return {
      {"T-070",
       7,
       "A cancelled step ends as cancelled and applies nothing",
       "Ctrl-C means a checkpoint now. A trainer asks cancelled() at least every 100 ms of work and at each "
       "step.",
       {"T-022", "T-027"},
       cancels},
      {"C-110",
       7,
       "It keeps to its budget of threads",
       "The budget counts the caller's thread. More than that fights with the host's own threads and with "
       "other runs on "
       "the machine.",
       {"C-070"},
       keeps_to_its_threads,
       true},
  };
}

}  // namespace trainhost::plugin_validator
