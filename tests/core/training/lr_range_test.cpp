// The rule of `train --find-lr` on synthetic losses whose best learning rate is known. The command on a real
// run: tests/tools/trainhost/find_lr_test.cpp.
#include "core/training/lr_range.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "core/base/error.hpp"

using namespace trainhost::training;

namespace {

const LrRange kRange{1e-6, 1, 100};

/// A loss of 10 at small rates that falls by `fall`, fastest at rate `steep` and within about a power of ten,
/// and grows from rate `rise` on.
struct Curve {
  double steep = 1e-3, rise = 0.05, fall = 4;
  double operator()(double lr) const {
    return 10 - fall / (1 + std::pow(steep / lr, 2)) + 2 * std::pow(lr / rise, 2);
  }
};

struct Range {
  std::vector<LrPoint> points;
  std::vector<double> losses;
  RangeEnd end = RangeEnd::kComplete;
};

/// A range test of `loss`: ends as one of a run does.
template <class Loss>
Range test_of(const Loss& loss, const LrRange& range = kRange) {
  Range out;
  for (std::uint64_t step = 0; step < range.steps; ++step) {
    const double lr = range.rate(step), y = loss(lr);
    if (!std::isfinite(y)) {
      out.end = RangeEnd::kNonfinite;
      return out;
    }
    out.points.push_back({lr, y, 1});
    out.losses.push_back(y);
    if (!has_diverged(out.losses)) continue;
    out.end = RangeEnd::kDiverged;
    return out;
  }
  return out;
}

LrSuggestion suggestion_of(const Range& r, const LrRange& range = kRange) {
  return suggest_lr(range, r.points, r.end);
}

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

/// Equal but for the rounding to two digits.
bool near(double a, double b, double factor = 1.06) { return a < b * factor && b < a * factor; }

}  // namespace

BOOST_AUTO_TEST_SUITE(lr_range)

BOOST_AUTO_TEST_CASE(rates_grow_by_a_constant_factor_from_one_end_to_the_other) {
  BOOST_TEST(kRange.rate(0) == 1e-6);
  BOOST_TEST(kRange.rate(99) == 1.0);
  for (std::uint64_t step = 1; step < 100; ++step)
    BOOST_TEST(kRange.rate(step) / kRange.rate(step - 1) == std::pow(1e6, 1.0 / 99),
               boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(the_steepest_descent_is_suggested_where_the_minimum_is_far) {
  const LrSuggestion s = suggestion_of(test_of(Curve{1e-3, 1, 4}));
  BOOST_REQUIRE(s.lr.has_value());
  // d loss / d ln(lr) is largest at `steep`; the loss is lowest at 2^(1/4) sqrt(steep rise).
  BOOST_TEST(near(*s.steepest, 1e-3, 1.2), *s.steepest);
  BOOST_TEST(near(*s.minimum, 0.0376, 1.2), *s.minimum);
  BOOST_TEST(near(*s.lr, *s.steepest));
  BOOST_TEST(has(s.reason, "falls fastest there; it is lowest at"), s.reason);
}

BOOST_AUTO_TEST_CASE(a_tenth_of_the_minimum_is_suggested_where_it_is_near) {
  const LrSuggestion s = suggestion_of(test_of(Curve{1e-3, 5e-3, 4}));
  BOOST_REQUIRE(s.lr.has_value());
  BOOST_TEST(near(*s.minimum, 0.00266, 1.5), *s.minimum);
  BOOST_TEST(near(*s.lr, *s.minimum / 10));
  BOOST_TEST(*s.lr < *s.steepest);
  BOOST_TEST(has(s.reason, "a tenth of"), s.reason);
}

BOOST_AUTO_TEST_CASE(noise_and_single_bad_batches_do_not_move_the_suggestion) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.3);
    std::size_t step = 0;
    const Range r = test_of([&](double lr) {
      const bool bad = ++step % 17 == 5;
      return Curve{}(lr) + noise(random) + (bad ? 40 : 0);
    });
    const LrSuggestion s = suggestion_of(r);
    BOOST_REQUIRE_MESSAGE(s.lr.has_value(), "seed " << seed << ": " << s.reason);
    BOOST_TEST(near(*s.lr, 1e-3, 2.5), "seed " << seed << ": " << *s.lr);
    BOOST_TEST((r.end == RangeEnd::kDiverged));
  }
}

BOOST_AUTO_TEST_CASE(a_flat_curve_has_no_suggestion) {
  const LrSuggestion exact = suggestion_of(test_of([](double) { return 2.5; }));
  BOOST_TEST(!exact.lr);
  BOOST_TEST(has(exact.reason, "the loss changes by 0.0000, no more than between batches"), exact.reason);
  std::size_t suggested = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(2.5, 0.2);
    suggested += suggestion_of(test_of([&](double) { return noise(random); })).lr.has_value();
  }
  BOOST_TEST(suggested <= 6u);  // 2 %
}

BOOST_AUTO_TEST_CASE(a_loss_that_diverges_from_the_start_has_no_suggestion) {
  const LrSuggestion rising = suggestion_of(test_of([](double lr) { return 2 + std::pow(lr * 1e6, 0.3); }));
  BOOST_TEST(!rising.lr);
  BOOST_TEST(has(rising.reason, "rises without having fallen"), rising.reason);
  double next = 1;
  const Range at_once = test_of([&](double) { return next *= 2; });
  BOOST_TEST(at_once.points.size() == 7u);
  BOOST_TEST((at_once.end == RangeEnd::kDiverged));
  BOOST_TEST(has(suggestion_of(at_once).reason, "diverges after 7 of 100 steps"));
  const Range none = test_of([](double) { return NAN; });
  BOOST_TEST(none.points.empty());
  const LrSuggestion s = suggestion_of(none);
  BOOST_TEST(!s.lr);
  BOOST_TEST(has(s.reason, "is not finite after 0 of 100 steps"), s.reason);
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_ends_the_curve) {
  const Range r = test_of([](double lr) { return lr > 0.02 ? NAN : Curve{}(lr); });
  BOOST_TEST((r.end == RangeEnd::kNonfinite));
  BOOST_TEST(r.points.back().lr <= 0.02);
  const LrSuggestion s = suggestion_of(r);
  BOOST_REQUIRE(s.lr.has_value());
  BOOST_TEST(near(*s.lr, 8.4e-4, 1.8), *s.lr);
  // The size of a loss that explodes changes nothing.
  const auto exploding = [](double size) {
    return suggestion_of(test_of([size](double lr) { return Curve{}(lr) + (lr > 0.02 ? size : 0); }));
  };
  const LrSuggestion large = exploding(1e12);
  BOOST_REQUIRE(large.lr.has_value());
  BOOST_TEST(near(*large.lr, 8.4e-4, 1.8), *large.lr);
  BOOST_TEST(*large.lr == *exploding(100).lr);
}

BOOST_AUTO_TEST_CASE(a_minimum_at_an_end_of_the_range_is_not_taken_for_one) {
  // The range ends while the loss falls ...
  LrSuggestion s = suggestion_of(test_of(Curve{0.8, 100, 4}));
  BOOST_TEST(!s.lr);
  BOOST_TEST(has(s.reason, "falls fastest at the largest rate, 1; extend the range"), s.reason);
  // ... after its steepest descent ...
  s = suggestion_of(test_of(Curve{1e-3, 1e9, 4}));
  BOOST_REQUIRE(s.lr.has_value());
  BOOST_TEST(near(*s.lr, 1e-3, 1.2));
  BOOST_TEST(has(s.reason, "it still falls at 1, so its minimum is not known"), s.reason);
  // ... begins after it ...
  s = suggestion_of(test_of(Curve{1e-7, 0.05, 4}));
  BOOST_TEST(!s.lr);
  BOOST_TEST(has(s.reason, "falls fastest at the smallest rate, 1e-06"), s.reason);
  // ... or less than a power of ten before the minimum.
  const LrRange narrow{1e-3, 1, 100};
  s = suggestion_of(test_of(Curve{2e-3, 0.01, 4}, narrow), narrow);
  BOOST_TEST(!s.lr);
  BOOST_TEST(has(s.reason, "a tenth of that is outside the range"), s.reason);
}

BOOST_AUTO_TEST_CASE(a_test_ends_when_the_loss_is_twice_its_minimum_and_above_its_start) {
  BOOST_TEST(!has_diverged(std::vector<double>{}));
  BOOST_TEST(!has_diverged(std::vector<double>{1, 9, 9, 9}));
  std::vector<double> losses(20, 5.0);
  losses.insert(losses.end(), 5, 2.0);
  losses.insert(losses.end(), 5, 4.9);  // twice the minimum, below the start
  BOOST_TEST(!has_diverged(losses));
  losses.insert(losses.end(), 2, 1e9);  // two bad batches
  BOOST_TEST(!has_diverged(losses));
  losses.insert(losses.end(), 1, 1e9);
  BOOST_TEST(has_diverged(losses));
}

BOOST_AUTO_TEST_CASE(a_range_is_read_and_mistakes_are_named) {
  const LrRange r = parse_lr_range("1e-5:0.5", kRange);
  BOOST_TEST(r.from == 1e-5);
  BOOST_TEST(r.to == 0.5);
  BOOST_TEST(r.steps == 100u);
  BOOST_TEST(parse_lr_range("1e-5:0.5:250", kRange).steps == 250u);
  const std::pair<const char*, const char*> wrong[] = {
      {"1e-5", "expected two learning rates"},
      {"", "expected two learning rates"},
      {"a:1", "a learning rate is above 0 and at most 100"},
      {"0:1", "a learning rate is above 0"},
      {"-1:1", "a learning rate is above 0"},
      {"1e-5:1000", "at most 100"},
      {"nan:1", "a learning rate is above 0"},
      {"1e-5:inf", "at most 100"},
      {"1:1e-3", "the first rate is not below the second"},
      {"1e-300:1", "more than 15 powers of ten apart"},
      {"1e-5:1:", "STEPS is a whole number from 20 to 10,000"},
      {"1e-5:1:19", "STEPS is a whole number"},
      {"1e-5:1:1e3", "STEPS is a whole number"},
      {"1e-5:1:20:3", "STEPS is a whole number"}};
  for (const auto& [text, message] : wrong)
    BOOST_CHECK_EXCEPTION(parse_lr_range(text, kRange), trainhost::Error, [&](const trainhost::Error& e) {
      return e.code() == trainhost::Exit::kUsage && has(e.full(), message) &&
             has(e.full(), "--find-lr=1e-06:1:100");
    });
}

BOOST_AUTO_TEST_SUITE_END()
