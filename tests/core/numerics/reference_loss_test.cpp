// The reference in double compared with the model of tests/support, which was compared with transformers, and
// its derivatives with the gradients of that model.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "core/numerics/compare_trainer.hpp"
#include "tests/support/reference_model.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(reference_loss)

BOOST_AUTO_TEST_CASE(losses_equal_those_of_the_model_of_the_tests) {
  for (const numerics::SampleRun& s : numerics::sample_runs()) {
    const numerics::Tensors w = numerics::generate_weights(s.model, 3);
    const numerics::Batch b = numerics::generate_batch(s.model, s.run, 4, 5);
    const double expected = reference::Model(s.model, b.seq).loss(w, b.tokens, b.targets);
    BOOST_TEST(std::abs(numerics::mean_loss(s.model, w, b) - expected) < 1e-12, s.what);
  }
}

BOOST_AUTO_TEST_SUITE_END()
