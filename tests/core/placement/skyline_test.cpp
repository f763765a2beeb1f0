// The skyline of packing, compared with one height per time step.
#include "core/placement/skyline.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>

using trainhost::placement::Skyline;

BOOST_AUTO_TEST_CASE(items_are_stacked_on_the_highest_of_their_lifetime) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 g(seed);
    const auto times = static_cast<std::uint32_t>(1 + g() % 400);
    const std::uint32_t longest = seed % 3 == 0 ? times : 1 + times / 20;
    Skyline sky(times);
    std::vector<std::uint64_t> height(times, 0);
    for (int i = 0; i < 300; ++i) {
      const auto first = static_cast<std::uint32_t>(g() % times);
      const std::uint32_t last = std::min<std::uint32_t>(times - 1, first + g() % longest);
      const std::uint64_t size = 1 + g() % 9;
      const auto begin = height.begin() + first, end = height.begin() + last + 1;
      const std::uint64_t expected = *std::max_element(begin, end);
      BOOST_REQUIRE_EQUAL(sky.highest(first, last), expected);
      BOOST_REQUIRE_EQUAL(sky.stack(first, last, size), expected);
      std::fill(begin, end, expected + size);
    }
    BOOST_TEST(sky.levels() == height, boost::test_tools::per_element());
  }
}
