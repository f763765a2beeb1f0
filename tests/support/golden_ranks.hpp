// The golden runs (float64 results from PyTorch) on several ranks of a trainer, with threads as ranks.
#pragma once
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "tests/support/golden_run.hpp"
#include "tests/support/rank_runs.hpp"

namespace trainhost::test {

struct RanksOfGolden {
  const char* name;
  std::uint32_t data, tensor, zero;
  bool sequence = false;
  std::uint32_t steps = UINT32_MAX;  // at most
};
inline std::ostream& operator<<(std::ostream& o, const RanksOfGolden& c) {
  return o << c.name << ", " << c.data << " x " << c.tensor << " ranks, ZeRO " << c.zero
           << (c.sequence ? ", sequence parallelism" : "");
}

/// Compares losses, gradient norms and, after all steps, the norms of the final weights of every rank.
template <class Rank>
void reproduce_golden(const RanksOfGolden& c) {
  const GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/" + c.name);
  const std::uint32_t sequences = g.run.micro_batch * g.run.accumulate, own = sequences / c.data;
  const std::uint32_t steps = std::min(c.steps, g.steps);
  BOOST_REQUIRE(own * c.data == sequences);
  struct Result {
    std::vector<double> loss, norm;
    Tensors weights;
  };
  std::vector<Result> of(c.data * c.tensor);
  ThreadRanks together(c.data * c.tensor);
  together.each([&](std::uint32_t number) {
    Rank host(number);
    host.ranks = together.rank(number);
    RunSpec run = g.run;
    run.micro_batch = 1, run.accumulate = own;
    run.parallel.data = c.data, run.parallel.data_rank = number / c.tensor + 1, run.parallel.zero = c.zero;
    run.parallel.sequence = c.sequence;
    run.parallel.tensor = c.tensor, run.parallel.tensor_rank = number % c.tensor + 1;
    PluginSession session(Rank::plugin(), host, g.model, run, host.device_number());
    session.load_all(g.weights);
    session.init(0);
    for (std::uint32_t t = 0; t < steps; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * sequences + std::uint64_t{number / c.tensor} * own, own, ids, targets);
      const th_step_out out = session.step(ids, targets, g.lr[t], t);
      of[number].loss.push_back(out.loss), of[number].norm.push_back(out.grad_norm);
    }
    of[number].weights = session.save();
  });
  for (const Result& r : of) {
    for (std::uint32_t t = 0; t < steps; ++t) {
      BOOST_TEST(std::abs(r.loss[t] - g.loss[t]) <= 2e-5,
                 "step " << t << ": loss " << r.loss[t] << " against " << g.loss[t]);
      BOOST_TEST(std::abs(r.norm[t] - g.grad_norm[t]) <= 1e-3 * g.grad_norm[t],
                 "step " << t << ": norm " << r.norm[t] << " against " << g.grad_norm[t]);
    }
    if (steps < g.steps) continue;
    for (const auto& [name, values] : r.weights) {
      double squares = 0;
      for (float v : values) squares += static_cast<double>(v) * v;
      BOOST_TEST(std::abs(std::sqrt(squares) - g.final_l2.at(name)) <= 1e-3 * g.final_l2.at(name), name);
    }
  }
}

}  // namespace trainhost::test
