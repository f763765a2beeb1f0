// The times of ranks: sums, the mean over the last steps, and the slowest rank.
#include "core/training/rank_times.hpp"

#include <boost/test/unit_test.hpp>
#include <vector>

using namespace trainhost::training;

BOOST_AUTO_TEST_SUITE(rank_times)

BOOST_AUTO_TEST_CASE(totals_are_sums_and_the_slowest_rank_is_the_one_that_computes_longest) {
  RankTimes times;
  BOOST_TEST(times.recent().wait_share == 0);
  for (int i = 0; i < 10; ++i) times.add(std::vector<RankTime>{{90, 10, 5}, {60, 40, 7}, {90, 10, 6}});
  BOOST_REQUIRE(times.total().size() == 3u);
  BOOST_TEST(times.total()[1].compute_ms == 600);
  BOOST_TEST(times.total()[1].wait_ms == 400);
  BOOST_TEST(times.total()[1].bytes == 70);
  BOOST_TEST(times.last()[2].bytes == 6);
  const RankTimes::Summary s = times.recent();
  BOOST_TEST(s.wait_share == 0.2, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(s.slowest == 0u);
  BOOST_TEST(s.excess == 0.125, boost::test_tools::tolerance(1e-12));  // 90 to a mean of 80
}

BOOST_AUTO_TEST_CASE(recent_times_follow_a_rank_that_becomes_slow) {
  RankTimes times;
  for (int i = 0; i < 100; ++i) times.add(std::vector<RankTime>{{100, 0, 0}, {50, 50, 0}});
  BOOST_TEST(times.recent().slowest == 0u);
  for (int i = 0; i < 40; ++i) times.add(std::vector<RankTime>{{100, 100, 0}, {200, 0, 0}});
  BOOST_TEST(times.recent().slowest == 1u);
  BOOST_TEST(slowest_rank(times.total()) == 0u);  // 14 s to 13 s
}

BOOST_AUTO_TEST_SUITE_END()
