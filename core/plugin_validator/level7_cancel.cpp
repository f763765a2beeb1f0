// Level 7: a step that is cancelled in the middle ends soon and applies nothing; a create() that meets the
// host's budget leaves nothing.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kPollSeconds = 0.1;  // host.h: cancelled() at least every 100 ms of work
constexpr double kBeforeCancel =
    0.02;  // seconds into the step: past a question that is asked once, at its beginning
constexpr double kStepSeconds =
    0.25;  // of the step that is cancelled: long enough to tell an early end from a late one

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

double step_seconds(Bench& b, std::uint32_t micro_batches) {
  Sample s = b.sample();
  s.run.accumulate = micro_batches;
  Instance i(b, s);
  i.begin();
  const Batch batch = make_batch(s, b.seed());
  double best = 1e9;
  for (std::uint64_t n = 0; n < 3; ++n) {
    const auto begin = Clock::now();
    must_step(i, batch, 1e-3, n);
    best = std::min(best, since(begin));
  }
  return best;
}

/// By the difference of two steps: the update itself is in both.
double micro_batch_seconds(Bench& b) {
  constexpr std::uint32_t kMany = 33;
  return std::max(1e-6, (step_seconds(b, kMany) - step_seconds(b, 1)) / (kMany - 1));
}

/// Seconds from the cancellation to the return of a long step; 0 when the step was done before.
double latency(Bench& b, double micro) {
  Sample s = b.sample();
  s.run.accumulate = static_cast<std::uint32_t>(std::clamp(kStepSeconds / micro, 4.0, 50000.0));
  Instance i(b, s);
  i.begin();
  const Batch batch = make_batch(s, b.seed());
  std::atomic<bool> told{false};
  Clock::time_point at;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::duration<double>(kBeforeCancel));
    at = Clock::now();
    told = true;
    b.host().cancel_from_now_on(true);
  });
  const StepAnswer a = i.step(batch, 1e-3, 0);
  const auto end = Clock::now();
  const bool before = !told;
  canceller.join();
  b.host().cancel_from_now_on(false);
  expect(a.ok() || a.status == TH_E_CANCELLED,
         "step() returned {} when the run was cancelled in the middle of it; "
         "TH_E_CANCELLED was expected",
         a.text());
  return before ? 0 : std::chrono::duration<double>(end - at).count();
}

void stops_soon(Bench& b) {
  Started started(b);
  b.need_device();
  const double micro = micro_batch_seconds(b), most = kPollSeconds + micro;
  double best = 1e9;
  for (int tries = 0; tries < 3 && best > most; ++tries) best = std::min(best, latency(b, micro));
  expect(best <= most,
         "step() returned {:.0f} ms after the run was cancelled; 100 ms and one micro-batch ({:.1f} ms) at "
         "most were expected",
         best * 1e3, micro * 1e3);
  b.figure(fmt::format("{:.1f} ms from the cancellation to the return, a micro-batch takes {:.1f} ms",
                       best * 1e3, micro * 1e3));
}

void cancelled_in_the_middle(Bench& b) {
  Started started(b);
  b.need_device();
  Sample s = b.sample();
  s.run.accumulate = 4;
  const Batch batch = make_batch(s, b.seed());
  for (int polls = 1; polls <= 6; ++polls) {
    Instance i(b, s);
    i.begin();
    const AllWeights before = weights_of(i);
    b.host().cancel_after(polls);
    const StepAnswer a = i.step(batch, 1e-2, 0);
    b.host().cancel_from_now_on(false);
    if (a.ok()) continue;  // it was done before the question
    const std::string where = first_difference(before, weights_of(i));
    expect(where.empty(), "step() was cancelled when it asked for the {}. time, and {} changed all the same",
           polls + 1, where);
    must_step(i, batch, 1e-2, 0);
  }
}

void budget_leaves_nothing(Bench& b) {
  Started started(b);
  b.need_device();
  plugin::Ledger& ledger = b.host().ledger();
  const std::uint64_t before = ledger.now_total();
  ledger.restart_peaks();
  {
    Instance i(b, b.sample());
    i.begin();
  }
  const std::uint64_t taken = ledger.peak_total() - before;
  if (taken == 0) throw NotHere("it takes nothing that the host counts");
  for (const std::uint64_t budget : {taken - 1, taken / 2, std::uint64_t{0}}) {
    Instance i(b, b.sample());
    ledger.set_limit(before + budget);
    const Answer a = i.create();
    i.destroy();
    ledger.set_limit(UINT64_MAX);
    const std::uint64_t held = ledger.now_total() - before;
    expect(held == 0,
           "with a budget of {} bytes of the {} that it takes, create() returned {} and left {} bytes taken",
           budget, taken, a.text(), held);
  }
}

}  // namespace

std::vector<Check> cancel_checks() {
  return {
      {"T-072",
       7,
       "A step that is cancelled in the middle applies nothing",
       "After some micro-batches of an update the user presses Ctrl-C: the checkpoint that follows holds the "
       "state from "
       "before the update, not a part of it.",
       {"T-070", "T-057"},
       cancelled_in_the_middle},
      {"T-071",
       7,
       "A cancelled step ends within 100 ms and a micro-batch",
       "A step over thousands of micro-batches takes minutes. cancelled() is to be asked at each of them, "
       "not once a step.",
       {"T-070"},
       stops_soon},
      {"T-073",
       7,
       "A create() that meets the budget leaves nothing",
       "The host's budget is a number that users give. A run that does not fit is refused, everything that "
       "it had taken "
       "until then is back, and the next one finds all of it.",
       {"T-011", "T-042"},
       budget_leaves_nothing},
  };
}

}  // namespace trainhost::plugin_validator
