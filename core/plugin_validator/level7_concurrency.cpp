// Level 7: functions with tag [any] are called from several threads at the same time, and two instances in
// one process do not affect each other. A race need not show in each run; the checks repeat the calls, and
// the plugin's own tests under a thread sanitizer find more.
#include <chrono>
#include <exception>
#include <future>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

// Enough steps for moments of one instance to reach the other.
constexpr int kSteps = 4;

void train(WatchedInstance& i, std::uint64_t batches, int n) {
  step_or_throw(i, make_batch(i.sample(), batches + n), 1e-2, n);
}

// The weights that each instance must end with.
AllWeights alone(WatchedPlugin& plugin, std::uint64_t batches) {
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  for (int n = 0; n < kSteps; ++n) train(i, batches, n);
  return weights_of(i);
}

void expect_alone(const AllWeights& expected, WatchedInstance& i, const char* how) {
  const std::string where = first_difference(expected, weights_of(i));
  expect(where.empty(),
         "two instances that trained {} do not have the weights of a single instance: {} differs", how,
         where);
}

void check_alternating_instances(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  // Different batches: equal runs could exchange their state without a difference.
  const AllWeights first = alone(plugin, 100), second = alone(plugin, 200);
  WatchedInstance one(plugin, plugin.sample()), other(plugin, plugin.sample());
  one.create_and_init(), other.create_and_init();
  for (int n = 0; n < kSteps; ++n) train(one, 100, n), train(other, 200, n);
  expect_alone(first, one, "alternately");
  expect_alone(second, other, "alternately");
}

void check_concurrent_instances(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const AllWeights first = alone(plugin, 100), second = alone(plugin, 200);
  WatchedInstance one(plugin, plugin.sample()), other(plugin, plugin.sample());
  one.create_and_init(), other.create_and_init();
  // An exception must not leave a thread; both are kept until the threads have ended.
  std::exception_ptr wrong[2];
  const auto train_all_steps = [&](WatchedInstance& i, std::uint64_t batches, std::exception_ptr& w) {
    try {
      for (int n = 0; n < kSteps; ++n) train(i, batches, n);
    } catch (...) {
      w = std::current_exception();
    }
  };
  std::thread second_thread([&] { train_all_steps(other, 200, wrong[1]); });
  train_all_steps(one, 100, wrong[0]);
  second_thread.join();
  // Only CheckFailed gets the addition; a skip passes through unchanged.
  for (const std::exception_ptr& w : wrong) try {
      if (w) std::rethrow_exception(w);
    } catch (const CheckFailed& e) {
      throw CheckFailed(std::string("while two instances trained at the same time, ") + e.what());
    }
  expect_alone(first, one, "at the same time");
  expect_alone(second, other, "at the same time");
}

/// Another thread makes a whole report of another run after each of the first nodes of this one. State that
/// the two share is overwritten in between, however the threads are scheduled.
void check_report_during_another(WatchedPlugin& plugin) {
  const Sample s = plugin.sample();
  Sample other = s;
  other.run.micro_batch *= 3;
  const std::string expected = report_text(plugin.report(s).report),
                    expected_inside = report_text(plugin.report(other).report);
  std::vector<std::future<std::string>> inside;
  CallVariation v;
  v.meanwhile = [&] {
    inside.push_back(
        std::async(std::launch::async, [&] { return report_text(plugin.report(other).report); }));
    // A plugin may allow one call at a time: the other then ends after this one.
    inside.back().wait_for(std::chrono::milliseconds(100));
  };
  bool same = report_text(plugin.report(s, v).report) == expected;
  for (std::future<std::string>& f : inside) same = f.get() == expected_inside && same;
  expect(
      same,
      "{} returned a different report when another thread called it before it had returned; the report must "
      "not depend on other calls",
      plugin.report_function());
}

}  // namespace

void check_report_from_four_threads(WatchedPlugin& plugin) {
  Started started(plugin);
  check_report_during_another(plugin);
  const Sample s = plugin.sample();
  // One thread first: the report that all others must give.
  const std::string expected = report_text(plugin.report(s).report);
  std::vector<std::string> differences(4);
  std::vector<std::thread> threads;
  for (std::string& difference : differences)
    threads.emplace_back([&] {
      // 50 calls per thread, so that the threads overlap also when they start at different times.
      for (int i = 0; i < 50 && difference.empty(); ++i) {
        const ReportResult a = plugin.report(s);
        if (!a.ok())
          difference = "returned " + a.text();
        else if (report_text(a.report) != expected)
          difference = "returned a different report";
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& difference : differences)
    expect(difference.empty(),
           "{} {} when four threads called it at the same time; the same report as from one thread was "
           "expected",
           plugin.report_function(), difference);
}

std::vector<Check> concurrency_checks() {
  return {
      {"T-074",
       7,
       "Two instances do not affect each other",
       "A student and a teacher, or two sizes of a sweep, train in one process. Fix: keep the state of an "
       "instance in the instance, not in static variables.",
       {"T-057"},
       check_alternating_instances},
      {"T-075",
       7,
       "Two instances can run step() at the same time",
       "[inst] allows one call at a time per instance, not per library: a host may use two instances from "
       "two threads. Fix: replace static variables by members of the instance, and locks of the library "
       "by locks of the instance.",
       {"T-074"},
       check_concurrent_instances},
      {"T-076",
       7,
       "Four threads get the same plan as one",
       "plan() has the tag [any]: a search plans on every core. A static buffer causes a different report "
       "or a crash. Fix: keep everything that a call needs in local variables.",
       {"C-070", "C-077"},
       check_report_from_four_threads},
  };
}

}  // namespace trainhost::plugin_validator
