// Level 7: what is [any] is called from several threads at once, and two instances live beside each other as
// if each were alone.
#include <exception>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/refusals.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kSteps = 4;

void train(Instance& i, std::uint64_t batches, int n) {
  must_step(i, make_batch(i.sample(), batches + n), 1e-2, n);
}

AllWeights alone(Bench& b, std::uint64_t batches) {
  Instance i(b, b.sample());
  i.begin();
  for (int n = 0; n < kSteps; ++n) train(i, batches, n);
  return weights_of(i);
}

void expect_alone(const AllWeights& expected, Instance& i, const char* how) {
  const std::string where = first_difference(expected, weights_of(i));
  expect(where.empty(),
         "two instances that trained {} did not both come to the weights of one alone: {} differs", how,
         where);
}

void by_turns(Bench& b) {
  Started started(b);
  b.need_device();
  const AllWeights first = alone(b, 100), second = alone(b, 200);
  Instance one(b, b.sample()), other(b, b.sample());
  one.begin(), other.begin();
  for (int n = 0; n < kSteps; ++n) train(one, 100, n), train(other, 200, n);
  expect_alone(first, one, "by turns");
  expect_alone(second, other, "by turns");
}

void at_once(Bench& b) {
  Started started(b);
  b.need_device();
  const AllWeights first = alone(b, 100), second = alone(b, 200);
  Instance one(b, b.sample()), other(b, b.sample());
  one.begin(), other.begin();
  std::exception_ptr wrong[2];
  const auto life = [&](Instance& i, std::uint64_t batches, std::exception_ptr& w) {
    try {
      for (int n = 0; n < kSteps; ++n) train(i, batches, n);
    } catch (...) {
      w = std::current_exception();
    }
  };
  std::thread second_thread([&] { life(other, 200, wrong[1]); });
  life(one, 100, wrong[0]);
  second_thread.join();
  for (const std::exception_ptr& w : wrong) try {
      if (w) std::rethrow_exception(w);
    } catch (const Broken& e) {
      throw Broken(std::string("while two instances trained at once, ") + e.what());
    }
  expect_alone(first, one, "at once");
  expect_alone(second, other, "at once");
}

void plans_from_four_threads(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  const std::string expected = printed(b.plan(s).report);
  std::vector<std::string> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25 && wrong[t].empty(); ++i) {
        const ReportAnswer a = b.plan(s);
        if (!a.ok())
          wrong[t] = "returned " + a.text();
        else if (printed(a.report) != expected)
          wrong[t] = "gave another report";
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& w : wrong)
    expect(w.empty(), "plan() {} when four threads called it at once; the same as from one was expected", w);
}

}  // namespace

std::vector<Check> concurrency_checks() {
  return {
      {"T-074",
       7,
       "Two instances train beside each other as if alone",
       "A student and a teacher, two sizes of a sweep: nothing of an instance may stand in a static "
       "variable.",
       {"T-057"},
       by_turns},
      {"T-075",
       7,
       "Two instances may step at the same time",
       "[inst] is one call at a time for each instance, not for the library: a host may drive two of them "
       "from two threads.",
       {"T-074"},
       at_once},
      {"T-076",
       7,
       "Four threads get the plan that one gets",
       "plan() is [any]: a search plans with every core. A static buffer shows here as another report or a "
       "crash.",
       {"C-070", "C-077"},
       plans_from_four_threads},
  };
}

}  // namespace trainhost::plugin_validator
