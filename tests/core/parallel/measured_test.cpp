// Estimates compared with published measurements: prints the error of each run and bounds it.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>

#include "core/parallel/rank_memory.hpp"
#include "tests/core/parallel/measured_runs.hpp"

using namespace trainhost;

namespace {

/// The estimate of the measured quantity: without the context; with allocator gaps only for reserved memory.
std::uint64_t comparable_bytes(const test::MeasuredRun& m) {
  const parallel::Numbers n = parallel::stage_numbers(m.model, m.run, parallel::worst_stage(m.model, m.run));
  const auto& device = n.bytes[std::size_t(Tier::kDevice)];
  std::uint64_t bytes = n.tier(Tier::kDevice) - device[std::size_t(Component::kRuntime)];
  if (m.kind == test::Measured::kAllocated) bytes -= device[std::size_t(Component::kFragmentation)];
  return bytes;
}

/// Prints the table; errors in percent.
std::vector<double> errors(const std::vector<test::MeasuredRun>& runs) {
  std::vector<double> all;
  for (const test::MeasuredRun& m : runs) {
    parallel::validate(m.model, m.run);
    const double ours = double(comparable_bytes(m)), error = 100 * (ours - double(m.bytes)) / double(m.bytes);
    std::printf("%-30s measured %8.2f GiB, ours %8.2f GiB, %+6.2f %%\n", m.what.c_str(),
                double(m.bytes) / 0x1p30, ours / 0x1p30, error);
    all.push_back(error);
  }
  return all;
}

double median_size(std::vector<double> v) {
  for (double& e : v) e = std::abs(e);
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(measured)

BOOST_AUTO_TEST_CASE(megatron_runs_agree_within_three_percent) {
  const std::vector<double> e = errors(test::megatron_runs());
  std::printf("median %.2f %%\n", median_size(e));
  BOOST_TEST(median_size(e) <= 1);
  for (double error : e) BOOST_TEST((error > -1 && error < 3));
}

BOOST_AUTO_TEST_CASE(torch_runs_agree_within_thirteen_percent) {
  const std::vector<double> e = errors(test::torch_runs());
  std::printf("median %.2f %%\n", median_size(e));
  BOOST_TEST(median_size(e) <= 4);
  for (double error : e) BOOST_TEST((error > -13 && error < 13));
}

BOOST_AUTO_TEST_CASE(upper_bounds_are_above_every_measurement) {
  for (const auto& runs : {test::megatron_runs(), test::torch_runs()})
    for (const test::MeasuredRun& m : runs) {
      MemoryReport r = parallel::report(m.model, m.run);
      raise_to_upper_bounds(r);
      const std::uint64_t runtime = r.component_bytes(Tier::kDevice, Component::kRuntime);
      BOOST_TEST(r.tier_bytes(Tier::kDevice) - runtime >= m.bytes, m.what);
    }
}

BOOST_AUTO_TEST_SUITE_END()
