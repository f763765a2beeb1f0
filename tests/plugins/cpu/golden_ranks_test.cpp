// The golden runs (float64 results from PyTorch) on several ranks: data-parallel ones with ZeRO 0 to 3, and
// tensor-parallel ones.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "tests/support/golden_run.hpp"
#include "tests/support/plugin_session.hpp"
#include "tests/support/thread_ranks.hpp"

namespace trainhost {
namespace {

using namespace test;

struct RanksOfGolden {
  const char* name;
  std::uint32_t data, tensor, zero;
  bool sequence = false;
};
std::ostream& operator<<(std::ostream& o, const RanksOfGolden& c) {
  return o << c.name << ", " << c.data << " x " << c.tensor << " ranks, ZeRO " << c.zero
           << (c.sequence ? ", sequence parallelism" : "");
}

std::vector<RanksOfGolden> golden_rank_cases() {
  std::vector<RanksOfGolden> all;
  for (const char* n : {"mha", "gqa-tied"})
    for (const auto& [data, tensor, zero] : {std::tuple{2u, 1u, 0u},
                                             {2u, 1u, 1u},
                                             {2u, 1u, 2u},
                                             {2u, 1u, 3u},
                                             {1u, 2u, 0u},
                                             {2u, 2u, 1u},
                                             {2u, 2u, 3u}})
      all.push_back({n, data, tensor, zero});
  all.push_back({"mha", 1, 2, 0, true});
  all.push_back({"gqa-tied", 2, 2, 3, true});
  return all;
}

BOOST_DATA_TEST_CASE(golden_runs_are_reproduced_by_ranks, boost::unit_test::data::make(golden_rank_cases()),
                     c) {
  const GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/" + c.name);
  const std::uint32_t sequences = g.run.micro_batch * g.run.accumulate, own = sequences / c.data;
  BOOST_REQUIRE(own * c.data == sequences);
  struct Result {
    std::vector<double> loss, norm;
    Tensors weights;
  };
  std::vector<Result> of(c.data * c.tensor);
  ThreadRanks together(c.data * c.tensor);
  together.each([&](std::uint32_t number) {
    CountingHost host(1);
    host.ranks = together.rank(number);
    RunSpec run = g.run;
    run.micro_batch = 1, run.accumulate = own;
    run.parallel.data = c.data, run.parallel.data_rank = number / c.tensor + 1, run.parallel.zero = c.zero;
    run.parallel.sequence = c.sequence;
    run.parallel.tensor = c.tensor, run.parallel.tensor_rank = number % c.tensor + 1;
    PluginSession session(cpu_plugin(), host, g.model, run);
    session.load_all(g.weights);
    session.init(0);
    for (std::uint32_t t = 0; t < g.steps; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * sequences + std::uint64_t{number / c.tensor} * own, own, ids, targets);
      const th_step_out out = session.step(ids, targets, g.lr[t], t);
      of[number].loss.push_back(out.loss), of[number].norm.push_back(out.grad_norm);
    }
    of[number].weights = session.save();
  });
  for (const Result& r : of) {
    for (std::uint32_t t = 0; t < g.steps; ++t) {
      BOOST_TEST(std::abs(r.loss[t] - g.loss[t]) <= 2e-5,
                 "step " << t << ": loss " << r.loss[t] << " against " << g.loss[t]);
      BOOST_TEST(std::abs(r.norm[t] - g.grad_norm[t]) <= 1e-3 * g.grad_norm[t],
                 "step " << t << ": norm " << r.norm[t] << " against " << g.grad_norm[t]);
    }
    for (const auto& [name, values] : r.weights) {
      double squares = 0;
      for (float v : values) squares += static_cast<double>(v) * v;
      BOOST_TEST(std::abs(std::sqrt(squares) - g.final_l2.at(name)) <= 1e-3 * g.final_l2.at(name), name);
    }
  }
}

}  // namespace
}  // namespace trainhost
