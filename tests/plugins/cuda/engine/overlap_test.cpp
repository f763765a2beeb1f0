// What overlaps in mode hybrid, by the virtual clock of the emulation.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "tests/plugins/cuda/engine/engine_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

/// How long kernels wait in an update of four micro-batches, in times of a function of the host. Copies and
/// products take no time.
double waits_of_kernels(bool tied, double kernel) {
  constexpr double kHost = 1e6;
  emu::reset();
  emu::Costs costs;
  costs.copy_bytes_per_us = costs.device_bytes_per_us = costs.matmul_flops_per_us = 1e12;
  costs.kernel_us = kernel * kHost, costs.host_function_us = kHost;
  emu::set_costs(costs);
  CudaHost host("hybrid");
  ModelSpec m = small_model("llama", 16, 8, 3, 2, 1, 4, 8);
  m.tied = tied;
  RunSpec r;
  r.seq_len = 4, r.micro_batch = 1, r.accumulate = 4;
  const std::size_t n = r.tokens_per_step();
  PluginSession s(cuda_engine(), host, m, r);
  s.load_all(as_floats(random_weights(m, 3)));
  s.init(0);
  s.step(random_tokens(n, m.vocab, 1), random_targets(n, m.vocab, 2), 0.01, 0);
  return static_cast<double>(counters(s).exposed_transfer_ns) / (kHost * 1e3);
}

BOOST_AUTO_TEST_SUITE(cuda_overlap)

// The device looks up nothing itself: without the hidden states of the next micro-batch it has nothing to
// compute while the host computes a loss.
BOOST_AUTO_TEST_CASE(an_embedding_does_not_wait_for_the_loss_before_it) {
  // A forward pass takes longer than the host needs for a loss. The first embedding remains, and where the
  // host owns the table its gradient of the last micro-batch.
  BOOST_TEST(std::abs(waits_of_kernels(true, 0.1) - 1) < 0.15);
  BOOST_TEST(std::abs(waits_of_kernels(false, 0.1) - 2) < 0.15);
  // Kernels take no time: the first embedding and four losses, of which each begins when the one before it
  // ends.
  BOOST_TEST(std::abs(waits_of_kernels(true, 0) - 5) < 0.01);
  BOOST_TEST(std::abs(waits_of_kernels(false, 0) - 9) < 0.01);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
