// Rotary frequencies (core/model/model_spec.hpp) compared with independently written formulas.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "core/model/model_spec.hpp"
#include "core/model/presets.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(rope)

BOOST_AUTO_TEST_CASE(default_frequencies_decrease_geometrically_from_one) {
  const auto f = rope_inv_freq(builtin_model());
  BOOST_TEST(f.size() == builtin_model().head_dim / 2);
  BOOST_TEST(f[0] == 1.0);
  for (std::size_t i = 1; i < f.size(); ++i)
    BOOST_TEST(f[i] / f[i - 1] == std::exp(-std::log(10000.0) / f.size()),
               boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(linear_scaling_divides_all_frequencies) {
  ModelSpec m = builtin_model();
  const auto plain = rope_inv_freq(m);
  m.rope = {RopeKind::kLinear, 4};
  const auto scaled = rope_inv_freq(m);
  for (std::size_t i = 0; i < plain.size(); ++i) BOOST_TEST(scaled[i] == plain[i] / 4);
}

BOOST_AUTO_TEST_CASE(llama3_keeps_short_wavelengths_stretches_long_ones_and_blends_between) {
  ModelSpec m = *find_model_preset("llama-3.1-8b");
  const auto scaled = rope_inv_freq(m);
  m.rope = {};
  const auto plain = rope_inv_freq(m);
  int kept = 0, blended = 0, stretched = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wave = 2 * M_PI / plain[i], ratio = plain[i] / scaled[i];
    const bool short_wave = wave<8192.0 / 4, long_wave = wave> 8192.0;
    (short_wave ? kept : long_wave ? stretched : blended) += 1;
    BOOST_TEST((short_wave  ? ratio == 1.0
                : long_wave ? ratio == 8.0
                            : ratio > 1.0 && ratio < 8.0),
               "pair " << i);
  }
  // Known for theta = 500000, D = 128: pairs 0-28 have wavelengths below 2048 positions, pairs from 35 on
  // above 8192.
  BOOST_TEST(kept == 29);
  BOOST_TEST(blended == 6);
  BOOST_TEST(stretched == 29);
}

BOOST_AUTO_TEST_SUITE_END()
