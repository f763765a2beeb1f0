// Initial weights (core/model/tensors.hpp): a pure function of seed, name and index with the right
// distribution.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/model/tensors.hpp"

using namespace trainhost;

namespace {

TensorInfo tensor(const char* name, TensorRole role, std::uint64_t n) { return {name, role, -1, 2, {n, 1}}; }

ModelSpec usual_model() {
  ModelSpec m = builtin_model();
  m.initializer_range = 0.02;
  return m;
}

std::vector<float> filled(const TensorInfo& t, std::uint64_t seed, std::uint64_t first, std::size_t n) {
  std::vector<float> out(n);
  init_tensor(usual_model(), t, seed, first, out);
  return out;
}

const TensorInfo kMatrix = tensor("model.layers.0.mlp.up_proj.weight", TensorRole::kUp, 1 << 20);

}  // namespace

BOOST_AUTO_TEST_SUITE(init)

BOOST_AUTO_TEST_CASE(any_range_in_any_order_has_the_same_bits) {
  const auto whole = filled(kMatrix, 7, 0, 1000);
  for (std::size_t first : {0, 1, 2, 33, 998})
    for (std::size_t n : {1, 2, 7, 500}) {
      if (first + n > whole.size()) continue;
      const auto part = filled(kMatrix, 7, first, n);
      BOOST_TEST(std::memcmp(part.data(), whole.data() + first, n * sizeof(float)) == 0, first << "+" << n);
    }
}

BOOST_AUTO_TEST_CASE(weights_depend_on_seed_and_tensor_name) {
  const TensorInfo other = tensor("model.layers.1.mlp.up_proj.weight", TensorRole::kUp, 1 << 20);
  BOOST_TEST((filled(kMatrix, 7, 0, 64) == filled(kMatrix, 7, 0, 64)));
  BOOST_TEST((filled(kMatrix, 7, 0, 64) != filled(kMatrix, 8, 0, 64)));
  BOOST_TEST((filled(kMatrix, 7, 0, 64) != filled(other, 7, 0, 64)));
}

BOOST_AUTO_TEST_CASE(the_bits_never_change) {
  // Runs are reproducible only if no compiler and no machine changes these bits.
  const auto w = filled(kMatrix, 1337, 0, 1 << 16);
  const std::string_view bytes(reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float));
  BOOST_TEST(fnv1a(bytes) == 8674171899690485550u);
}

BOOST_AUTO_TEST_CASE(elements_are_the_box_muller_pair_of_their_counter) {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  };
  const auto w = filled(kMatrix, 5, 0, 20000);
  const std::uint64_t key = mix(fnv1a(kMatrix.name) ^ mix(5));
  double worst = 0;
  for (std::uint64_t p = 0; p < w.size() / 2; ++p) {
    const std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
    const double u1 = std::ldexp(static_cast<double>((mix(key + golden * (2 * p + 1)) >> 11) + 1), -53);
    const double u2 = std::ldexp(static_cast<double>(mix(key + golden * (2 * p + 2)) >> 11), -53);
    const double r = 0.02 * std::sqrt(-2 * std::log(u1));
    worst = std::max(worst, std::abs(w[2 * p] - r * std::cos(2 * M_PI * u2)));
    worst = std::max(worst, std::abs(w[2 * p + 1] - r * std::sin(2 * M_PI * u2)));
  }
  BOOST_TEST(worst < 4e-9);  // half a unit in the last place of a float near 0.1
}

BOOST_AUTO_TEST_CASE(matrices_are_normal_with_the_models_deviation) {
  const std::size_t n = 1 << 20;
  const auto w = filled(kMatrix, 1, 0, n);
  double sum = 0, square = 0, cube = 0, fourth = 0, neighbours = 0;
  std::size_t beyond_two = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double z = w[i] / usual_model().initializer_range;
    sum += z, square += z * z, cube += z * z * z, fourth += z * z * z * z;
    if (i) neighbours += z * w[i - 1] / usual_model().initializer_range;
    beyond_two += std::abs(z) > 2;
  }
  // Five standard errors of each moment.
  const double root = std::sqrt(static_cast<double>(n));
  BOOST_TEST(std::abs(sum / n) < 5 / root);
  BOOST_TEST(std::abs(square / n - 1) < 5 * std::sqrt(2.0) / root);
  BOOST_TEST(std::abs(cube / n) < 5 * std::sqrt(15.0) / root);
  BOOST_TEST(std::abs(fourth / n - 3) < 5 * std::sqrt(96.0) / root);
  BOOST_TEST(std::abs(neighbours / n) < 5 / root);
  BOOST_TEST(std::abs(beyond_two / static_cast<double>(n) - 0.0455003) < 5 * 0.2084 / root);
}

BOOST_AUTO_TEST_CASE(norms_are_one_and_biases_zero) {
  for (float x : filled(tensor("n", TensorRole::kNorm1, 8), 1, 0, 8)) BOOST_TEST(x == 1.0f);
  for (float x : filled(tensor("n", TensorRole::kQNorm, 8), 1, 0, 8)) BOOST_TEST(x == 1.0f);
  for (float x : filled(tensor("n", TensorRole::kKBias, 8), 1, 0, 8)) BOOST_TEST(x == 0.0f);
  for (float x : filled(tensor("n", TensorRole::kDownBias, 8), 1, 0, 8)) BOOST_TEST(x == 0.0f);
}

BOOST_AUTO_TEST_SUITE_END()
