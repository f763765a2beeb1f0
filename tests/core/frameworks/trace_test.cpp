// Traces and their evaluation: names, peak, phases. Written as a framework of one's own would write one.
#include <boost/test/unit_test.hpp>

#include "core/frameworks/autograd/shape.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/trace/host_memory.hpp"

using namespace trainhost;
using namespace trainhost::frameworks;

BOOST_AUTO_TEST_SUITE(trace)

BOOST_AUTO_TEST_CASE(the_peak_is_found_with_its_time_and_its_largest_storages) {
  Trace trace;
  TraceWriter w(trace);
  w.begin(kLoad, 0, 0);
  w.allocate(1000, Purpose::kWeights, 0, "mlp.up_proj", "weight");
  w.begin(kForward, 1, 1);
  const std::uint32_t x = w.allocate(3000, Purpose::kActivations, 0, "mlp.up_proj", "output");
  w[x].saved = true;
  const std::uint32_t y = w.allocate(500, Purpose::kActivations, -1, "norm", "output");
  w.free(y);
  w.begin(kBackward, 1, 1);
  const std::uint32_t g = w.allocate(800, Purpose::kBackward, 0, "mlp.up_proj", "gradient");
  w.free(x);
  w.free(g);

  const Peak peak = find_peak(trace, {.block = 1, .largest = 2});
  BOOST_TEST(peak.bytes == 4800u);
  BOOST_TEST(int(peak.phase.phase) == int(kBackward));
  BOOST_REQUIRE_EQUAL(peak.largest.size(), 2u);
  BOOST_TEST(trace.name_of(trace.storages[peak.largest[0]]) ==
             "layers.0.mlp.up_proj output, saved for backward");
  BOOST_TEST(trace.name_of(trace.storages[peak.largest[1]]) == "layers.0.mlp.up_proj weight");
  BOOST_TEST(peak.by_purpose[std::size_t(Purpose::kActivations)] == 3000u);
  BOOST_TEST(peak.largest_by_purpose[std::size_t(Purpose::kActivations)] == 3500u);  // before y is freed
  BOOST_TEST(time_of(trace, peak) ==
             "backward pass of micro-batch 1 in step 1, when layers.0.mlp.up_proj gradient is allocated");
  // Rounded to blocks of 512: 1024 + 3072 + 1024 against 1024 + 3072 + 512.
  BOOST_TEST(find_peak(trace).bytes == 5120u);
  const std::vector<std::uint64_t> phases = peaks_of_phases(trace, 1);
  BOOST_TEST(phases == (std::vector<std::uint64_t>{1000, 4500, 4800}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_tensor_that_has_the_name_of_its_module_is_named_once) {
  Trace trace;
  TraceWriter w(trace);
  w.begin(kForward, 1, 1);
  w.allocate(4, Purpose::kLogits, -1, "loss", "loss");
  BOOST_TEST(trace.name_of(trace.storages.front()) == "loss");
}

BOOST_AUTO_TEST_CASE(shapes_follow_the_rules_of_pytorch) {
  // [B, S, A, D] seen as [B, A, S, D]: batch and heads cannot be merged without a copy.
  const Shape heads = Shape{2, 5, 3, 4}.transposed(1, 2);
  BOOST_TEST(!heads.contiguous());
  BOOST_TEST(!heads.viewed({6, 5, 4}).has_value());
  BOOST_TEST((Shape{1, 5, 3, 4}.transposed(1, 2).viewed({3, 5, 4}).has_value()));
  // An elementwise result has the strides of its first input, also where the second one is broadcast.
  const Shape product = elementwise(heads, Shape{1, 1, 5, 4});
  BOOST_TEST(product.stride[1] == 4);
  BOOST_TEST(product.stride[2] == 12);
  // Repeated heads: a view with stride 0, which cannot be merged.
  const Shape repeated = Shape{2, 3, 5, 4}.unsqueezed(2).expanded(2, 2);
  BOOST_TEST(repeated.stride[2] == 0);
  BOOST_TEST(!repeated.viewed({2, 6, 5, 4}).has_value());
  BOOST_TEST(elementwise(repeated).count() == 240u);
}

// CachingHostAllocator of torch: PowerOf2Ceil() of the size, and a list of free blocks per size.
BOOST_AUTO_TEST_CASE(pinned_buffers_are_powers_of_two_and_take_freed_blocks_of_their_size) {
  HostMemory host;
  host.add_freed(5);  // a block of 8
  host.add_freed(8);
  host.add_freed(9);  // of 16
  host.add(7, Purpose::kGradients, "gradients", true);
  host.add(33, Purpose::kGradients, "gradients", true);
  host.add(33, Purpose::kOptimizerState, "moments", false);
  host.add(0, Purpose::kWeights, "nothing", true);
  const std::vector<HostBuffers> all = host.buffers();
  BOOST_TEST_REQUIRE(all.size() == 3u);
  BOOST_TEST(all[0].bytes == 40u);
  BOOST_TEST(all[0].allocated == 8u + 64u);
  BOOST_TEST(all[1].allocated == 33u);
  // One block of 8 and that of 16 have no tensor.
  BOOST_TEST(all[2].bytes == 0u);
  BOOST_TEST(all[2].allocated == 8u + 16u);
}

BOOST_AUTO_TEST_SUITE_END()
