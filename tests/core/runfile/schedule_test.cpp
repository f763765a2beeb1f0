// Learning-rate schedules: values of transformers, lengths given as steps, as ratios and with epochs.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "core/runfile/run_config.hpp"

using namespace trainhost::runfile;

namespace {

struct Row {
  std::string schedule, decay;
  std::uint64_t warmup, decay_steps, steps;
  double min_lr;
  std::uint64_t t;
  double lr;
};
const Row kRows[] = {
#include "tests/core/runfile/lr_schedules.inc"
};

RunConfig scheduled_run(const std::string& toml) { return parse_run(toml, "run.toml", "/tmp"); }

/// A run file of the built-in run with this schedule.
RunConfig scheduled_run(const Row& r) {
  std::string toml = "[train]\nsteps = " + std::to_string(r.steps) +
                     "\n[optimizer]\nlr = 0.002\nschedule = \"" + r.schedule +
                     "\"\nwarmup_steps = " + std::to_string(r.warmup) +
                     "\nmin_lr = " + std::to_string(r.min_lr) + "\n";
  if (r.schedule == "wsd")
    toml += "decay_steps = " + std::to_string(r.decay_steps) + "\ndecay = \"" + r.decay + "\"\n";
  return scheduled_run(toml);
}

std::string message_of(const std::string& toml) {
  try {
    scheduled_run(toml);
  } catch (const trainhost::Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(schedule)

BOOST_AUTO_TEST_CASE(learning_rates_are_those_of_transformers) {
  for (const Row& r : kRows) {
    const RunConfig c = scheduled_run(r);
    BOOST_TEST(std::abs(lr_at(c.optimizer, r.t, r.steps) - r.lr) <= 1e-15,
               r.schedule << " " << r.decay << " step " << r.t << " of " << r.steps << ": "
                          << lr_at(c.optimizer, r.t, r.steps) << ", transformers " << r.lr);
  }
}

BOOST_AUTO_TEST_CASE(wsd_decays_over_the_end_of_the_run) {
  OptimizerConfig o;
  o.lr = 1, o.schedule = Schedule::kWsd, o.warmup_steps = 2, o.decay_steps = 4;
  for (std::uint64_t t = 2; t <= 6; ++t) BOOST_TEST(lr_at(o, t, 10) == 1);
  BOOST_TEST(lr_at(o, 7, 10) == 0.75);
  BOOST_TEST(lr_at(o, 10, 10) == 0);
  // A run that is shorter than warm-up and decay together decays from the end of the warm-up.
  o.warmup_steps = 8;
  BOOST_TEST(lr_at(o, 8, 10) == 1);
  BOOST_TEST(lr_at(o, 9, 10) == 0.5);
  BOOST_TEST(lr_at(o, 2, 3) == 3.0 / 8);  // it ends during warm-up
  o.warmup_steps = 0, o.decay_steps = 100;
  BOOST_TEST(lr_at(o, 5, 10) == 0.5);
  o.decay_steps = 0;
  BOOST_TEST(lr_at(o, 9, 10) == 1);
}

BOOST_AUTO_TEST_CASE(lengths_are_given_as_steps_or_ratios) {
  RunConfig c = scheduled_run("[train]\nsteps = 1000\n[optimizer]\nschedule = \"wsd\"\n");
  BOOST_TEST(c.optimizer.warmup_steps == 100u);
  BOOST_TEST(c.optimizer.decay_steps == 100u);
  c = scheduled_run(
      "[train]\nsteps = 333\n[optimizer]\nschedule = \"wsd\"\nwarmup_ratio = 0.03\ndecay_ratio = 0.5\n");
  BOOST_TEST(c.optimizer.warmup_steps == 10u);  // rounded up, as transformers does
  BOOST_TEST(c.optimizer.decay_steps == 167u);
  c = scheduled_run("[optimizer]\nwarmup_ratio = 1.0\n");
  BOOST_TEST(c.optimizer.warmup_steps == 4400u);
  BOOST_TEST(scheduled_run("[optimizer]\nwarmup_ratio = 0.0\n").optimizer.warmup_steps == 0u);
}

BOOST_AUTO_TEST_CASE(lengths_follow_the_steps_of_epochs) {
  RunConfig c = scheduled_run(
      "[train]\nepochs = 2.0\n[optimizer]\nschedule = \"wsd\"\nwarmup_ratio = 0.1\ndecay_ratio = 0.2\n");
  set_steps(c, 50);
  BOOST_TEST(c.steps == 50u);
  BOOST_TEST(c.optimizer.warmup_steps == 5u);
  BOOST_TEST(c.optimizer.decay_steps == 10u);
  c = scheduled_run(
      "[train]\nepochs = 2.0\n[optimizer]\nschedule = \"wsd\"\nwarmup_steps = 7\ndecay_steps = 9\n");
  set_steps(c, 50);
  BOOST_TEST(c.optimizer.warmup_steps == 7u);
  BOOST_TEST(c.optimizer.decay_steps == 9u);
  c = scheduled_run("[train]\nepochs = 2.0\n");
  set_steps(c, 50);
  BOOST_TEST(c.optimizer.warmup_steps == 5u);
}

BOOST_AUTO_TEST_CASE(contradictions_are_errors) {
  const auto says = [](const std::string& toml, const std::string& part) {
    const std::string message = message_of(toml);
    BOOST_TEST(message.find(part) != message.npos, message);
  };
  says("[optimizer]\nwarmup_steps = 3\nwarmup_ratio = 0.1\n", "both are the length of the warm-up");
  says("[optimizer]\nschedule = \"wsd\"\ndecay_steps = 3\ndecay_ratio = 0.1\n",
       "both are the length of the decay");
  says("[optimizer]\ndecay_steps = 3\n", "optimizer.decay_steps requires optimizer.schedule = \"wsd\"");
  says("[optimizer]\ndecay = \"cosine\"\n", "optimizer.decay requires optimizer.schedule = \"wsd\"");
  says("[optimizer]\nschedule = \"wsd\"\nwarmup_ratio = 0.6\ndecay_ratio = 0.5\n",
       "are together more than the run");
  says("[train]\nsteps = 100\n[optimizer]\nschedule = \"wsd\"\nwarmup_steps = 60\ndecay_steps = 50\n",
       "60 steps of warm-up and 50 steps of decay are more than train.steps = 100");
  says("[optimizer]\nwarmup_ratio = 1.5\n", "optimizer.warmup_ratio = 1.5");
  BOOST_TEST(message_of("[optimizer]\nschedule = \"wsd\"\nwarmup_ratio = 0.5\ndecay_ratio = 0.5\n") == "");
}

BOOST_AUTO_TEST_SUITE_END()
