// The reference model itself: its gradients of every tensor compared with finite differences in double, for
// every small model.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/support/small_models.hpp"

namespace trainhost {
namespace {

using namespace test;

BOOST_AUTO_TEST_SUITE(cpu_reference)

BOOST_DATA_TEST_CASE(reference_gradients_match_finite_differences,
                     boost::unit_test::data::make(small_models()), z) {
  const std::size_t n = 2 * z.seq;
  const reference::Ids ids = random_tokens(n, z.spec.vocab, 1), targets = random_targets(n, z.spec.vocab, 2);
  const reference::Model model(z.spec, z.seq);
  reference::Weights w = random_weights(z.spec, 3), grads;
  model.loss(w, ids, targets, &grads);
  BOOST_TEST_REQUIRE(grads.size() == w.size());
  std::mt19937 g(4);
  for (auto& [name, values] : w) {
    for (int pick = 0; pick < 5; ++pick) {
      const std::size_t i = g() % values.size();
      const double before = values[i], h = 1e-5;
      values[i] = before + h;
      const double up = model.loss(w, ids, targets);
      values[i] = before - h;
      const double down = model.loss(w, ids, targets);
      values[i] = before;
      const double expected = (up - down) / (2 * h), error = std::abs(grads[name][i] - expected);
      BOOST_TEST(error <= 1e-8 + 1e-6 * std::abs(expected),
                 name << "[" << i << "]: " << grads[name][i] << " against " << expected);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
