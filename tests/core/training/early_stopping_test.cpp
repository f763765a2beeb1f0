// When validation losses end a run. The same rule on whole runs:
// tests/tools/trainhost/early_stopping_test.cpp.
#include "core/training/early_stopping.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

using trainhost::training::EarlyStopping;

namespace {

/// The number of losses after which `e` stops; 0 = it does not.
std::size_t stops_after(EarlyStopping e, const std::vector<double>& losses) {
  for (std::size_t i = 0; i < losses.size(); ++i) {
    e.add(losses[i]);
    if (e.stops()) return i + 1;
  }
  return 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(early_stopping)

BOOST_AUTO_TEST_CASE(patience_counts_evaluations_without_improvement) {
  BOOST_TEST(stops_after({2, 0}, {3, 2, 2.5, 2.5}) == 4u);
  BOOST_TEST(stops_after({2, 0}, {3, 2, 2.5, 1.9, 2, 1.9}) == 6u);  // equal is no improvement
  BOOST_TEST(stops_after({1, 0}, {3, 3}) == 2u);
  BOOST_TEST(stops_after({0, 0}, {3, 3, 3, 3}) == 0u);
}

BOOST_AUTO_TEST_CASE(small_improvements_add_up_to_min_delta) {
  BOOST_TEST(stops_after({2, 0.1}, {3, 2.95, 2.91, 2.85}) == 3u);
  BOOST_TEST(stops_after({3, 0.1}, {3, 2.95, 2.91, 2.85, 2.8, 2.8}) == 0u);
}

BOOST_AUTO_TEST_CASE(losses_that_are_not_finite_are_no_improvement) {
  BOOST_TEST(stops_after({2, 0}, {NAN, INFINITY}) == 2u);
  BOOST_TEST(stops_after({2, 0}, {NAN, 5, NAN, INFINITY}) == 4u);
}

BOOST_AUTO_TEST_CASE(the_state_survives_a_checkpoint) {
  const std::vector<double> losses = {3, NAN, 2.1, 2.05, 1.0 / 3, 0.4, 0.33, 0.5, 0.5, 0.5};
  for (std::size_t cut = 0; cut <= losses.size(); ++cut) {
    EarlyStopping whole(3, 0.01), first(3, 0.01), second(3, 0.01);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      whole.add(losses[i]);
      if (i == cut) second.restore(first.text());
      (i < cut ? first : second).add(losses[i]);
    }
    BOOST_TEST((cut < losses.size() ? second : first).text() == whole.text());
  }
  for (const char* broken : {"", "x", "1.0", "1.0 ", "nan 1", "1.0 x", "1.0 1 2", "- -1"}) {
    EarlyStopping e(3, 0);
    e.add(1);
    e.restore(broken);
    BOOST_TEST(e.text() == "- 0", broken);
  }
}

BOOST_AUTO_TEST_SUITE_END()
