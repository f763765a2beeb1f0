// The mask of lora.dropout: the generator has the published numbers, and the mask the mean and variance of
// torch.nn.Dropout, whatever the product, the micro-batch and the rate.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <vector>

#include "core/step/dropout.hpp"

using namespace trainhost::step;

namespace {

std::vector<float> factors(const DropoutMask& mask, std::uint64_t rows, std::uint64_t columns) {
  std::vector<float> out;
  for (std::uint64_t r = 0; r < rows; ++r)
    mask.for_row(r, 0, columns, [&](std::uint64_t c, float factor) {
      BOOST_REQUIRE(out.size() == r * columns + c);
      out.push_back(factor);
    });
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(dropout)

// Known answers of the authors' library Random123.
BOOST_AUTO_TEST_CASE(philox_has_the_published_numbers) {
  using Words = std::array<std::uint32_t, 4>;
  constexpr std::uint32_t kOnes = 0xffffffff;
  BOOST_TEST((philox4x32_10({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  BOOST_TEST((philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  BOOST_TEST((philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

BOOST_AUTO_TEST_CASE(factors_have_mean_one_and_the_variance_of_torch) {
  for (const double rate : {0.05, 0.5, 0.9}) {
    const std::vector<float> f = factors({7, rate, 13, 3}, 300, 333);
    double sum = 0, squares = 0;
    for (const float x : f) sum += x, squares += double(x) * x;
    const double n = static_cast<double>(f.size()), mean = sum / n, variance = squares / n - mean * mean,
                 expected = rate / (1 - rate);
    BOOST_TEST(f.size() == 300u * 333);
    BOOST_TEST(std::abs(mean - 1) <= 5 * std::sqrt(expected / n), rate << ": mean " << mean);
    BOOST_TEST(std::abs(variance / expected - 1) <= 0.05, rate << ": variance " << variance);
  }
}

BOOST_AUTO_TEST_CASE(masks_of_other_products_micro_batches_rows_and_seeds_are_independent) {
  const double rate = 0.5;
  const std::vector<float> one = factors({7, rate, 13, 3}, 100, 100);
  BOOST_TEST((one == factors({7, rate, 13, 3}, 100, 100)));
  const std::uint64_t far = std::uint64_t{1} << 32;
  for (const DropoutMask& other :
       {DropoutMask{8, rate, 13, 3}, DropoutMask{7 + far, rate, 13, 3}, DropoutMask{7, rate, 14, 3},
        DropoutMask{7, rate, 13, 4}, DropoutMask{7, rate, 13, 3 + far}}) {
    const std::vector<float> two = factors(other, 100, 100);
    double both = 0;
    for (std::size_t i = 0; i < one.size(); ++i) both += (one[i] - 1) * (two[i] - 1);
    BOOST_TEST(std::abs(both / 1e4) <= 0.05);  // five standard deviations of 1 / sqrt(10^4)
  }
  double rows = 0;
  for (std::size_t i = 0; i + 100 < one.size(); ++i) rows += (one[i] - 1) * (one[i + 100] - 1);
  BOOST_TEST(std::abs(rows / 1e4) <= 0.05);
}

BOOST_AUTO_TEST_SUITE_END()
