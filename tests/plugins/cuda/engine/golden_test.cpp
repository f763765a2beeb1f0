// The golden runs (float64 results from PyTorch) through the CUDA trainer on the emulation, in every mode and
// precision: losses, gradient norms, norms of the final weights, and the reported transfers of each mode.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/plugins/cuda/engine/fake_cudnn_library.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Case {
  const char* name;
  const char* mode;
  const char* precision = "fp32";
  Recompute recompute = Recompute::kNone;
  std::uint32_t micro_batch = 0;  // 0 = the run's own
  std::uint32_t steps = 0;        // 0 = all
  const char* attention = "";
};
std::ostream& operator<<(std::ostream& o, const Case& c) {
  return o << c.name << ", " << c.mode << ", " << c.precision << ", recompute " << name(c.recompute)
           << ", micro-batch " << c.micro_batch << (*c.attention ? ", attention " : "") << c.attention;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* mode : kModes) {
    for (const char* run : {"mha", "gqa-tied"}) {
      all.push_back({run, mode});
      all.push_back({run, mode, "fp32", Recompute::kFull, 0, 2});
      for (Recompute r : {Recompute::kNone, Recompute::kFull}) all.push_back({run, mode, "fp32", r, 1, 2});
      for (const char* precision : {"tf32", "bf16"})
        all.push_back({run, mode, precision, Recompute::kNone, 0, 3});
      // Attention is on the device in every mode: all cases in one of them, one in each of the others.
      for (Recompute r : {Recompute::kNone, Recompute::kFull})
        if (std::string(mode) == "resident" || (std::string(run) == "gqa-tied" && r == Recompute::kFull))
          all.push_back({run, mode, "bf16", r, r == Recompute::kFull ? 1u : 0u, 2, "cudnn"});
    }
    all.push_back({"contract", mode, "fp32", Recompute::kNone, 0, 2});
  }
  return all;
}

/// Allowed absolute error of a loss, and relative errors of gradient norm and norm of a weight. bf16 products
/// have 8 bits, TF32 products 11. The run "contract" has many steps, over which any two orders of summation
/// diverge.
struct Tolerance {
  double loss, norm, weight;
};
Tolerance tolerance(const Case& c) {
  const std::string precision = c.precision;
  if (precision == "bf16") return {3e-2, 5e-2, 1e-2};
  if (precision == "tf32") return {3e-3, 2e-2, 2e-3};
  return {std::string(c.name) == "contract" && c.steps == 0 ? 1e-3 : 2e-5, 1e-3, 1e-3};
}

void reproduce(const Case& c) {
  emu::reset();
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/" + c.name);
  const std::uint32_t sequences = g.run.micro_batch * g.run.accumulate;
  if (c.micro_batch) {
    BOOST_TEST_REQUIRE(sequences % c.micro_batch == 0u);
    g.run.micro_batch = c.micro_batch, g.run.accumulate = sequences / c.micro_batch;
  }
  g.run.recompute = c.recompute;
  g.run = in_precision(g.run, c.precision);
  const std::uint32_t steps = c.steps ? std::min(c.steps, g.steps) : g.steps;
  const Tolerance allowed = tolerance(c);
  const FakeCudnnLibrary cudnn;
  CudaHost host(c.mode);
  host.attention = c.attention;
  {
    PluginSession session(cuda_engine(), host, g.model, g.run);
    session.load_all(g.weights);
    session.init(0);
    double worst = 0;
    for (std::uint32_t t = 0; t < steps; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * sequences, sequences, ids, targets);
      const th_step_out out = session.step(ids, targets, g.lr[t], t);
      worst = std::max(worst, std::abs(out.loss - g.loss[t]));
      BOOST_TEST(std::abs(out.loss - g.loss[t]) <= allowed.loss,
                 "step " << t << ": loss " << out.loss << " against " << g.loss[t]);
      BOOST_TEST(std::abs(out.grad_norm - g.grad_norm[t]) <= allowed.norm * g.grad_norm[t],
                 "step " << t << ": norm " << out.grad_norm << " against " << g.grad_norm[t]);
    }
    BOOST_TEST_MESSAGE("largest loss difference " << worst);
    const th_counters n = counters(session);
    const std::uint64_t micros = std::uint64_t{steps} * g.run.accumulate, el = size_of(g.run.weight);
    const bool hybrid = std::string(c.mode) == "hybrid";
    BOOST_TEST(n.h2d_count + n.d2h_count == (hybrid ? 3 * micros : 0u));
    BOOST_TEST(
        n.h2d_bytes + n.d2h_bytes ==
        (hybrid ? micros * el * g.run.tokens_per_micro_batch() * (g.model.hidden + 2 * g.model.vocab) : 0u));
    BOOST_TEST(n.sync_count == (!hybrid ? 0 : g.model.tied ? steps : micros));
    for (const auto& [name, values] : session.save()) {
      if (steps != g.steps) break;
      double squares = 0;
      for (float v : values) squares += static_cast<double>(v) * v;
      BOOST_TEST(std::abs(std::sqrt(squares) - g.final_l2.at(name)) <= allowed.weight * g.final_l2.at(name),
                 name);
    }
    BOOST_TEST(session.metric("sync_mismatch") == 0.0);
  }
  BOOST_TEST((cudnn->executed > 0) == (std::string(c.attention) == "cudnn"));
  BOOST_TEST(cudnn->objects == 0);
  BOOST_TEST(host.all_freed());
  BOOST_TEST(emu::outstanding().nothing());
  BOOST_TEST(emu::problems().empty());
}

BOOST_AUTO_TEST_SUITE(cuda_golden)
BOOST_DATA_TEST_CASE(golden_runs_are_reproduced, boost::unit_test::data::make(cases()), c) { reproduce(c); }
BOOST_AUTO_TEST_SUITE_END()

// Takes minutes: runs only if selected by name (label slow).
BOOST_AUTO_TEST_SUITE(cuda_golden_all, *boost::unit_test::disabled())
BOOST_DATA_TEST_CASE(the_contract_run_is_reproduced_to_its_end, boost::unit_test::data::make(kModes), mode) {
  reproduce({"contract", mode});
}
BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
