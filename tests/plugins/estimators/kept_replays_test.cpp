// The estimator of PyTorch when it is asked for many runs, as planners do: replays are kept for the same run,
// and bounds that cost a replay are left out where nobody needs them. Neither may change a figure.
#include <boost/test/unit_test.hpp>
#include <random>

#include "core/model/presets.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;

namespace {

model::Architecture two_layers() {
  const auto presets = model_presets();
  model::Architecture a = model::from_model(*std::ranges::find(presets, "llama-3.2-1b", &ModelSpec::name));
  a.layers.front().count = 2;
  return a;
}

RunSpec run_of_tokens(std::uint32_t tokens) {
  RunSpec r = mixed_precision();
  r.seq_len = tokens;
  return r;
}

/// The bytes of `report` that are not those of its upper bounds.
std::uint64_t margin_of(MemoryReport report) { return raise_to_upper_bounds(report); }

}  // namespace

BOOST_AUTO_TEST_SUITE(kept_replays)

// More runs than the 48 that are kept, in several orders, so that each is asked for when it is kept and when
// it is not.
BOOST_AUTO_TEST_CASE(a_run_has_the_same_figures_however_many_others_were_asked_for) {
  constexpr std::size_t kRuns = 60;
  const model::Architecture a = two_layers();
  const pytorch::Options options;
  std::vector<std::uint32_t> tokens;
  std::map<std::uint32_t, std::uint64_t> peaks, reserved;
  for (std::uint32_t i = 0; i < kRuns; ++i) {
    tokens.push_back(64 + 24 * i);
    const RunSpec r = run_of_tokens(tokens.back());
    std::vector<std::string> notes;
    const frameworks::Trace t =
        frameworks::training_step(a, pytorch::step_settings(a, r, options, notes)).trace;
    peaks[tokens.back()] = frameworks::find_peak(t).bytes;
    reserved[tokens.back()] = frameworks::replay_allocator(t, options.allocator).reserved;
  }
  std::mt19937 random(48);
  for (int round = 0; round < 3; ++round) {
    for (const std::uint32_t n : tokens) {
      // Two of three ask for the verdict alone, as planners do: those end early.
      RunSpec r = run_of_tokens(n);
      pytorch::Options asked = options;
      asked.only_if_it_fits = asked.verdict_only = random() % 3 != 0;
      if (asked.verdict_only)
        r.device_budget = (random() % 2 ? 2 * reserved[n] : peaks[n] / 2) + options.runtime;
      const MemoryReport report = pytorch::report(a, r, asked);
      const std::uint64_t bytes = report.tier_bytes(Tier::kDevice);
      if (r.device_budget && r.device_budget < peaks[n])
        BOOST_TEST(bytes > r.device_budget, n);
      else
        BOOST_TEST(bytes == reserved[n] + options.runtime, n << " tokens, round " << round);
    }
    std::ranges::shuffle(tokens, random);
  }
}

// The two bounds that take a replay of their own: the other start script of torchtitan, and the 8-bit step of
// torchtune.
BOOST_AUTO_TEST_CASE(bounds_that_are_left_out_change_no_figure) {
  RunSpec titan = run_of_tokens(2048), tune = run_of_tokens(2048);
  titan.parallel.data = 8, titan.parallel.zero = 3, titan.recompute = Recompute::kSelective;
  tune.master = DType::kNone, tune.grad = tune.moment = DType::kBF16, tune.optimizer = Optimizer::kAdamW8bit;
  for (const auto& [framework, run] : {std::pair{"torchtitan", titan}, {"torchtune", tune}}) {
    const auto of = [&](bool without) {
      std::map<std::string, std::string> options = {{"framework", framework}};
      plugin::Registry plugins = registry(options);
      plugins.set_interest({false, false, !without});
      return plugins.estimator("pytorch").estimate(llama_8b(), run, nullptr);
    };
    const MemoryReport with = of(false), without = of(true);
    BOOST_TEST(with.total_bytes() == without.total_bytes(), framework);
    BOOST_TEST(with.notes == without.notes, boost::test_tools::per_element());
    BOOST_TEST(margin_of(with) > margin_of(without), framework);
  }
}

BOOST_AUTO_TEST_SUITE_END()
