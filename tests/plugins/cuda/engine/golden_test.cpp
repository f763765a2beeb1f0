// The golden runs, float64 results from PyTorch, through the whole CUDA trainer on the emulation, in each of its modes: every
// loss, gradient norm and final weight, with the transfers of each mode counted by the emulation as well.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "tests/plugins/cuda/engine/rig.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Case {
  const char* name;
  const char* mode;
  Recompute recompute;
  std::uint32_t micro_batch;  // 0 = the run's own
};
std::ostream& operator<<(std::ostream& o, const Case& c) {
  return o << c.name << ", " << c.mode << ", recompute " << name(c.recompute) << ", micro-batch " << c.micro_batch;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* mode : {"resident", "hybrid", "streamed"})
    for (const char* n : {"mha", "gqa-tied", "contract"})
      for (Recompute r : {Recompute::kNone, Recompute::kFull})
        for (std::uint32_t micro : {0u, 1u}) all.push_back({n, mode, r, micro});
  return all;
}

BOOST_AUTO_TEST_SUITE(cuda_golden)

BOOST_DATA_TEST_CASE(golden_runs_are_followed, boost::unit_test::data::make(cases()), c) {
  emu::reset();
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/" + c.name);
  const std::uint32_t sequences = g.run.micro_batch * g.run.accumulate;
  if (c.micro_batch) {
    if (sequences % c.micro_batch != 0 || c.micro_batch == g.run.micro_batch) return;  // no other way to cut it
    g.run.micro_batch = c.micro_batch, g.run.accumulate = sequences / c.micro_batch;
  }
  g.run.recompute = c.recompute;
  CudaHost host(c.mode);
  {
    PluginSession session(cuda_engine(), host, g.model, g.run);
    session.load_all(g.weights);
    session.init(0);
    const double loss_tolerance = std::string(c.name) == "contract" ? 1e-3 : 2e-5;
    double worst = 0;
    for (std::uint32_t t = 0; t < g.steps; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * sequences, sequences, ids, targets);
      const th_step_out out = session.step(ids, targets, g.lr[t], t);
      worst = std::max(worst, std::abs(out.loss - g.loss[t]));
      BOOST_TEST(std::abs(out.loss - g.loss[t]) <= loss_tolerance, "step " << t << ": loss " << out.loss << " against " << g.loss[t]);
      BOOST_TEST(std::abs(out.grad_norm - g.grad_norm[t]) <= 1e-3 * g.grad_norm[t], "step " << t << ": norm " << out.grad_norm << " against " << g.grad_norm[t]);
    }
    BOOST_TEST_MESSAGE("largest loss difference " << worst);
    const th_counters n = counters(session);
    const std::uint64_t micros = std::uint64_t{g.steps} * g.run.accumulate;
    const bool hybrid = std::string(c.mode) == "hybrid";
    BOOST_TEST(n.h2d_count + n.d2h_count == (hybrid ? 3 * micros : 0u));
    BOOST_TEST(n.h2d_bytes + n.d2h_bytes == (hybrid ? micros * 4 * g.run.tokens_per_micro_batch() * (g.model.hidden + 2 * g.model.vocab) : 0u));
    BOOST_TEST(n.sync_count == (!hybrid ? 0 : g.model.tied ? g.steps : micros));
    for (const auto& [name, values] : session.save()) {
      double squares = 0;
      for (float v : values) squares += static_cast<double>(v) * v;
      BOOST_TEST(std::abs(std::sqrt(squares) - g.final_l2.at(name)) <= 1e-3 * g.final_l2.at(name), name);
    }
    if (hybrid) BOOST_TEST(session.metric("sync_mismatch") == 0.0);
  }
  BOOST_TEST(host.all_back());
  BOOST_TEST(emu::outstanding().nothing());
  BOOST_TEST(emu::problems().empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
