// The example trainer as a plugin: golden runs with every recompute policy, allocated bytes compared with
// planned bytes, resumed training with bit-identical results, and its kernels compared with the reference.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/executor/kernel_check.hpp"
#include "sdk/examples/plain_trainer/plain_kernels.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/plugin_session.hpp"

namespace trainhost {
namespace {

using namespace test;

const Plugin& plain_plugin() {
  static const Plugin p(EXAMPLE_PLUGINS "/plain.so");
  return p;
}
GoldenRun golden(const char* name) {
  return read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/" + name);
}

struct Case {
  const char* name;
  Recompute recompute;
};
std::ostream& operator<<(std::ostream& o, const Case& c) {
  return o << c.name << ", recompute " << name(c.recompute);
}
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* n : {"mha", "gqa-tied", "contract"})
    for (Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
      if (r == Recompute::kNone || std::string(n) != "contract") all.push_back({n, r});
  return all;
}

/// One update of a golden run.
th_step_out step(PluginSession& session, const GoldenRun& g, std::uint32_t t) {
  const std::uint64_t sequences = std::uint64_t{g.run.micro_batch} * g.run.accumulate;
  std::vector<std::int32_t> ids, targets;
  g.samples(t * sequences, sequences, ids, targets);
  return session.step(ids, targets, g.lr[t], t);
}

BOOST_AUTO_TEST_SUITE(plain_trainer)

BOOST_DATA_TEST_CASE(golden_runs_are_reproduced_with_the_planned_bytes, boost::unit_test::data::make(cases()),
                     c) {
  GoldenRun g = golden(c.name);
  g.run.recompute = c.recompute;
  CountingHost host(2);
  const std::uint64_t planned = plain_plugin().plan(host, g.model, g.run).total_bytes();
  {
    PluginSession session(plain_plugin(), host, g.model, g.run);
    session.load_all(g.weights);
    session.init(0);
    const double tolerance = std::string(c.name) == "contract" ? 1e-3 : 2e-5;
    const std::uint32_t steps =
        tolerance > 1e-4 ? 3 : g.steps;  // the large model takes a minute: only the first steps
    for (std::uint32_t t = 0; t < steps; ++t) {
      const th_step_out out = step(session, g, t);
      BOOST_TEST(std::abs(out.loss - g.loss[t]) <= tolerance,
                 "step " << t << ": loss " << out.loss << ", expected " << g.loss[t]);
      BOOST_TEST(std::abs(out.grad_norm - g.grad_norm[t]) <= 1e-3 * g.grad_norm[t],
                 "step " << t << ": norm " << out.grad_norm);
    }
    if (steps == g.steps)
      for (const auto& [name, values] : session.save()) {
        double squares = 0;
        for (float v : values) squares += static_cast<double>(v) * v;
        BOOST_TEST(std::abs(std::sqrt(squares) - g.final_l2.at(name)) <= 1e-3 * g.final_l2.at(name), name);
      }
  }
  BOOST_TEST(host.peak == planned);
  BOOST_TEST(host.now == 0u);
}

BOOST_AUTO_TEST_CASE(a_resumed_run_is_bit_identical) {
  const GoldenRun g = golden("mha");
  const std::uint32_t steps = std::min(g.steps, 6u), stop = steps / 2;
  CountingHost host(2);
  PluginSession whole(plain_plugin(), host, g.model, g.run), first(plain_plugin(), host, g.model, g.run);
  whole.load_all(g.weights), whole.init(0), first.load_all(g.weights), first.init(0);
  for (std::uint32_t t = 0; t < steps; ++t) step(whole, g, t);
  for (std::uint32_t t = 0; t < stop; ++t) step(first, g, t);
  PluginSession resumed(plain_plugin(), host, g.model, g.run);
  for (std::uint32_t scope : {TH_SCOPE_WEIGHTS, TH_SCOPE_MOMENT1, TH_SCOPE_MOMENT2})
    resumed.load_all(first.save(scope), scope);
  resumed.init(0);
  for (std::uint32_t t = stop; t < steps; ++t) step(resumed, g, t);
  for (std::uint32_t scope : {TH_SCOPE_WEIGHTS, TH_SCOPE_MOMENT1, TH_SCOPE_MOMENT2})
    BOOST_TEST((resumed.save(scope) == whole.save(scope)));
  BOOST_TEST((first.save() != whole.save()));
}

BOOST_AUTO_TEST_CASE(generation_and_evaluation_give_the_same_logits) {
  const GoldenRun g = golden("mha");
  CountingHost host(1);
  PluginSession session(plain_plugin(), host, g.model, g.run);
  session.load_all(g.weights), session.init(0);
  std::vector<std::int32_t> ids, targets;
  g.samples(0, 1, ids, targets);
  double loss = 0;
  for (std::uint32_t p = 0; p < g.run.seq_len; ++p) {
    const std::vector<float> logits = session.next(ids[p], p);
    double total = 0;
    for (float l : logits) total += std::exp(static_cast<double>(l));
    loss += std::log(total) - logits[static_cast<std::size_t>(targets[p])];
  }
  BOOST_TEST(std::abs(loss / g.run.seq_len - session.evaluate(ids, targets).loss) < 1e-5);
}

BOOST_AUTO_TEST_CASE(its_kernels_match_the_reference) {
  const KernelCheckResult r = kernel_check<plain::Kernels>();
  for (const KernelFinding& f : r.findings) BOOST_ERROR(f.kernel << ", " << f.shape << ": " << f.what);
  BOOST_TEST(r.passed.size() == 21u);
  BOOST_TEST(executor::inherited_kernels<plain::Kernels>() == "");
}

BOOST_AUTO_TEST_CASE(it_has_fewer_than_600_lines) {
  std::size_t lines = 0;
  for (const char* file : {"plain_trainer.cpp", "plain_kernels.hpp", "check.cpp", "CMakeLists.txt"}) {
    std::ifstream in(std::string(TRAINHOST_SOURCE_DIR) + "/sdk/examples/plain_trainer/" + file);
    BOOST_REQUIRE(in);
    for (std::string line; std::getline(in, line);) ++lines;
  }
  BOOST_TEST(lines < 600u);
  BOOST_TEST(lines > 100u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
