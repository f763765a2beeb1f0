// core/base/memory_report: sums by tier and component.
#include <boost/test/unit_test.hpp>

#include "core/base/memory_report.hpp"

using namespace trainhost;

namespace {

MemoryEntry entry(std::uint32_t id, std::uint32_t parent, Component c, std::uint32_t phases,
                  std::uint64_t bytes) {
  MemoryEntry n;
  n.id = id, n.parent = parent, n.component = c, n.phases = phases, n.bytes = bytes;
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_report)

BOOST_AUTO_TEST_CASE(without_stated_tiers_the_total_is_the_largest_phase_of_the_entries) {
  MemoryReport r;
  r.entries = {entry(1, 0, Component::kWorkspace, 0, 999),  // a heading: never counted
               entry(2, 1, Component::kWeights, 0, 100),    // no phases: live in every phase
               entry(3, 1, Component::kActivations, kForward | kBackward, 40),
               entry(4, 1, Component::kGradients, kBackward | kUpdate, 100),
               entry(5, 1, Component::kWorkspace, kUpdate, 30)};
  BOOST_TEST(r.tier_bytes(Tier::kHost) == 240u);  // backward
  BOOST_TEST(r.total_bytes() == 240u);
  BOOST_TEST(r.component_bytes(Component::kGradients) == 100u);
  BOOST_TEST(r.component_bytes(Tier::kDevice, Component::kGradients) == 0u);
}

BOOST_AUTO_TEST_CASE(shares_of_the_peak_sum_to_the_tier) {
  MemoryReport r;
  r.entries = {entry(1, 0, Component::kWeights, kForward, 100),
               entry(2, 0, Component::kLogits, kForward, 50)};
  r.entries[0].has_at_peak = r.entries[1].has_at_peak = true;
  r.entries[0].bytes_at_peak = 100, r.entries[1].bytes_at_peak = 20;
  BOOST_TEST(r.tier_bytes(Tier::kHost) == 120u);
  BOOST_TEST(r.component_bytes(Component::kLogits) == 20u);
}

BOOST_AUTO_TEST_CASE(a_stated_tier_total_overrides_the_entries) {
  MemoryReport r;
  r.entries = {entry(1, 0, Component::kWeights, kForward, 100)};
  r.tiers = {{Tier::kHost, 128, kForward}, {Tier::kPinned, 8, kLoad}};
  BOOST_TEST(r.tier_bytes(Tier::kHost) == 128u);
  BOOST_TEST(r.total_bytes() == 136u);
}

BOOST_AUTO_TEST_CASE(upper_bounds_add_the_margin_of_each_approximation_to_entries_and_tiers) {
  MemoryReport r;
  r.claim = Claim::kApproximation;
  r.entries = {entry(1, 0, Component::kWorkspace, 0, 150), entry(2, 1, Component::kWeights, 0, 100),
               entry(3, 1, Component::kActivations, kForward, 50)};
  for (MemoryEntry& n : r.entries) n.claim = Claim::kApproximation, n.lo = n.hi = n.bytes;
  r.entries[0].hi = 170, r.entries[2].hi = 70;
  r.entries[1].claim = Claim::kExact;
  r.entries[2].has_at_peak = true, r.entries[2].bytes_at_peak = 30;
  r.tiers = {{Tier::kHost, 130, kForward}, {Tier::kDisk, 8, kForward}};
  BOOST_TEST(raise_to_upper_bounds(r) == 20u);  // the heading repeats the margin of its child
  BOOST_TEST(r.entries[0].bytes == 170u);
  BOOST_TEST(r.entries[1].bytes == 100u);
  BOOST_TEST(r.entries[2].bytes == 70u);
  BOOST_TEST(r.entries[2].bytes_at_peak == 50u);
  BOOST_TEST(r.total_bytes() == 158u);
  BOOST_TEST((r.claim == Claim::kUpperBound && r.entries[1].claim == Claim::kExact));
  BOOST_TEST(raise_to_upper_bounds(r) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
