// The simulated step compared with sums: without ranks, with one lane at a time, and with shared cores.
#include "core/step/step_simulation.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "core/step/op_cost.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::step;
using placement::test::Case;

namespace {

Program simulated_program(std::uint32_t ranks, std::uint32_t zero, std::uint32_t accumulate = 1) {
  Case c = placement::test::small_case();
  c.run.accumulate = accumulate;
  return (ranks > 1 ? placement::test::on_ranks(c, ranks, zero) : c).build();
}

StepRates uniform(double per_flop, double per_byte) {
  StepRates r;
  r.kinds.fill({per_flop, per_byte});
  return r;
}

void close(double a, double b) { BOOST_TEST(std::abs(a - b) <= 1e-9 * std::abs(b), a << " against " << b); }

std::uint64_t gradient_bytes(const Program& p) {
  std::uint64_t bytes = 0;
  for (const Param& q : p.params) bytes += whole_elements(p, q.grad) * 4;
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simulation)

BOOST_AUTO_TEST_CASE(one_rank_takes_the_sum_of_its_operations) {
  const Program p = simulated_program(1, 0, 3);
  StepRates r = uniform(1e-9, 1e-10);
  r.between_s = 1e-6;
  double sum = 0;
  const auto add = [&](SectionKind kind, bool first) {
    for (std::uint32_t i = p.section(kind).begin; i < p.section(kind).end; ++i) {
      const OpCost c = op_cost(p, p.ops[i], first);
      sum += std::max(1e-9 * double(c.flops), 1e-10 * double(c.bytes())) + 1e-6;
    }
  };
  add(SectionKind::kMicro, true), add(SectionKind::kMicro, false), add(SectionKind::kMicro, false);
  add(SectionKind::kUpdate, false);
  const SimulatedStep s = simulate_step(p, r);
  close(s.seconds, sum);
  close(s.compute_s, sum);
  BOOST_TEST((s.waited_s == 0 && s.communication_s == 0 && s.bytes == 0));
}

BOOST_AUTO_TEST_CASE(without_computation_a_step_takes_its_messages) {
  for (std::uint32_t ranks : {2u, 3u, 4u}) {
    const Program p = simulated_program(ranks, 0, 2);
    StepRates r = uniform(0, 0);
    r.data = {1e-3, 2e-3, 1e-6, 3e-6};
    const SimulatedStep s = simulate_step(p, r);
    // An all-reduce of every gradient, of 16 bytes before each micro-batch and of 16 in the update.
    const double part = double(ranks - 1) / ranks, bytes = double(gradient_bytes(p)) + 3 * 16;
    close(s.seconds, 2 * 1e-3 * double(p.params.size() + 3) + part * bytes * 4e-6);
    close(s.waited_s, s.seconds);
    BOOST_TEST(std::abs(double(s.bytes) - 2 * part * bytes) < double(p.params.size() + 3));
  }
}

// README of docs: 2, 2, A + 1 and at most 3 A times (N - 1) / N of the gradients.
BOOST_AUTO_TEST_CASE(bytes_are_the_closed_form_of_each_zero_stage) {
  for (std::uint32_t accumulate : {1u, 3u}) {
    const double a = accumulate;
    const Program whole = simulated_program(4, 0, accumulate);
    const double unit = 0.75 * double(gradient_bytes(whole)), scalars = 1.5 * 16 * (a + 1);
    const auto bytes = [&](std::uint32_t zero) {
      return (double(simulate_step(simulated_program(4, zero, accumulate), uniform(0, 0)).bytes) - scalars) /
             unit;
    };
    BOOST_TEST(std::abs(bytes(0) - 2) < 0.02);
    BOOST_TEST(std::abs(bytes(1) - 2) < 0.02);
    BOOST_TEST(std::abs(bytes(2) - (a + 1)) < 0.02);
    BOOST_TEST((bytes(3) > 2.5 * a && bytes(3) <= 3 * a + 0.02));
  }
}

BOOST_AUTO_TEST_CASE(lanes_with_a_core_each_overlap_and_lanes_on_one_core_do_not) {
  for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    const Program p = simulated_program(4, zero, 2);
    StepRates r = uniform(1e-8, 1e-9);
    r.data.gather_per_byte = 2e-9, r.data.reduce_per_byte = 3e-9;
    r.cores = 2;
    const SimulatedStep two = simulate_step(p, r);
    BOOST_TEST(two.seconds < two.compute_s + two.communication_s);
    BOOST_TEST(two.seconds >= two.compute_s);
    close(two.seconds, two.compute_s + two.waited_s);
    r.cores = 1;
    close(simulate_step(p, r).seconds, two.compute_s + two.communication_s);
    r.cores = 0.5;
    close(simulate_step(p, r).seconds, 2 * (two.compute_s + two.communication_s));
  }
}

BOOST_AUTO_TEST_CASE(a_latency_passes_during_computation_also_on_one_core) {
  const Program p = simulated_program(2, 0);
  StepRates r = uniform(1e-6, 1e-7);
  r.data.latency_s = 1e-9, r.data.all_reduce_latency_s = 2e-9, r.cores = 1;
  const SimulatedStep s = simulate_step(p, r);
  BOOST_TEST(s.waited_s > 0);  // of the scalars, and of the last gradients
  BOOST_TEST(s.seconds < s.compute_s + s.communication_s);
}

// Equal micro-batches are simulated once: the time grows by the same amount with each.
BOOST_AUTO_TEST_CASE(repeated_micro_batches_take_as_long_as_simulated_ones) {
  for (std::uint32_t zero : {0u, 2u, 3u}) {
    StepRates r = uniform(1e-9, 1e-10);
    r.data = {1e-6, 2e-6, 2e-9, 3e-9};
    const auto of = [&](std::uint32_t accumulate) {
      return simulate_step(simulated_program(4, zero, accumulate), r);
    };
    const SimulatedStep three = of(3), four = of(4), twenty = of(20);
    close(twenty.seconds - four.seconds, 16 * (four.seconds - three.seconds));
    close(twenty.data_s - four.data_s, 16 * (four.data_s - three.data_s));
    BOOST_TEST(twenty.bytes - four.bytes == 16 * (four.bytes - three.bytes));
  }
}

// The sums of TP ranks need not wait for the gradients of DP ranks.
BOOST_AUTO_TEST_CASE(a_lane_per_group_separates_tensor_and_data_ranks) {
  const Program p = placement::test::on_tensor_ranks(placement::test::small_case(), 2, 1, 2, 3).build();
  StepRates r = uniform(1e-9, 1e-10);
  r.data = {1e-4, 2e-4, 2e-9, 3e-9}, r.tensor = {1e-6, 2e-6, 2e-9, 3e-9};
  const SimulatedStep shared = simulate_step(p, r);
  r.lane_per_group = true, r.cores = 3;
  const SimulatedStep separate = simulate_step(p, r);
  BOOST_TEST(separate.seconds < shared.seconds);
  BOOST_TEST((separate.tensor_s > 0 && separate.data_s > 0));
  close(separate.tensor_s + separate.data_s, separate.waited_s);
  close(separate.communication_s, shared.communication_s);
  r.lane_per_group = false, r.tensor = r.data;
  close(simulate_step(p, r).seconds,
        [&] { return r.cores = 2, simulate_step(p, r).seconds; }());  // one lane has no use for a third core
}

// With one micro-batch the program starts the reductions of every layer together, then those of the final
// norm, of the head and of the embedding.
BOOST_AUTO_TEST_CASE(operations_that_start_together_may_share_a_latency) {
  const Program p = simulated_program(4, 0);
  StepRates r = uniform(0, 0);
  r.data = {1e-3, 2e-3, 0, 0, false, true};
  std::size_t groups = 2;  // sums of scalars
  OpKind last{};
  for (const Op& op : p.ops) {
    groups += op.kind == OpKind::kAllReduce && last != OpKind::kAllReduce;
    last = op.kind;
  }
  const SimulatedStep s = simulate_step(p, r);
  close(s.seconds, 2e-3 * double(groups));
  BOOST_TEST(groups < p.params.size());
}

BOOST_AUTO_TEST_CASE(parts_of_a_step_sum_to_it) {
  Case c = placement::test::on_ranks(placement::test::small_case(), 4, 2);
  c.run.recompute = Recompute::kFull;
  StepRates r = uniform(1e-9, 1e-10);
  r.data = {1e-5, 2e-5, 2e-9, 3e-9};
  const SimulatedStep s = simulate_step(c.build(), r);
  close(s.arithmetic_s + s.traffic_s + s.recompute_s + s.update_s, s.compute_s);
  close(s.tensor_s + s.data_s, s.waited_s);
  close(s.compute_s + s.waited_s, s.seconds);
  BOOST_TEST((s.recompute_s > 0 && s.update_s > 0 && s.traffic_s > 0 && s.data_s > 0 && s.tensor_s == 0));
}

BOOST_AUTO_TEST_SUITE_END()
