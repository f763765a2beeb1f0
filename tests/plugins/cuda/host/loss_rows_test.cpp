// Loss and gradient of a row in every variant of the instruction sets, against double: all lengths around the
// step of the loops, logits that are large, far apart or -inf, and values that are not finite.
#include "plugins/cuda/host/loss_rows.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

namespace trainhost::cuda::host {
namespace {

float widened(float x) { return x; }
float widened(Half x) {
  float f;
  to_float(1, &x, &f);
  return f;
}

template <class T>
std::vector<T> row_of(const std::vector<double>& values) {
  std::vector<float> floats(values.begin(), values.end());
  std::vector<T> row(values.size());
  if constexpr (sizeof(T) == sizeof(float))
    row = floats;
  else
    to_half(row.size(), floats.data(), row.data());
  return row;
}

std::vector<double> normal(std::size_t n, unsigned seed, double width, double middle = 0) {
  std::mt19937 g(seed);
  std::vector<double> v(n);
  for (double& x : v) {
    x = middle;
    for (int i = 0; i < 12; ++i) x += (static_cast<double>(g()) / 4294967296.0 - 0.5) * width;
  }
  return v;
}

template <class T>
auto function(const LossRows& r) {
  if constexpr (sizeof(T) == sizeof(float))
    return r.f32;
  else
    return r.bf16;
}

/// Compares every variant with double. `off`: of loss and f32 gradients, relative to 1 + loss and to the
/// gradient.
template <class T>
void check(const std::vector<double>& logits, std::size_t target, double off, const char* what) {
  const std::vector<T> before = row_of<T>(logits);
  const std::size_t n = before.size();
  constexpr float kScale = 1.0f / 3.0f;
  double top = -INFINITY, total = 0;
  for (T x : before) top = std::max(top, static_cast<double>(widened(x)));
  for (T x : before) total += std::exp(widened(x) - top);
  const double loss = std::log(total) + top - widened(before[target]);
  const double ulp = sizeof(T) == sizeof(float) ? off : 0x1p-8 + 1e-4;  // half a unit of the last bit
  std::vector<T> widest;
  for (const LossRows& r : runnable_loss_rows()) {
    std::vector<T> row(n + 1);  // not aligned, with an element behind it that must not change
    std::memcpy(row.data(), before.data(), n * sizeof(T));
    row[n] = 7;
    const double got = function<T>(r)(n, row.data(), static_cast<std::int64_t>(target), kScale);
    BOOST_TEST(std::abs(got - loss) <= off * (1 + loss),
               what << ", " << r.name << ", n " << n << ": " << got << " against " << loss);
    BOOST_TEST(row[n] == 7);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double p = std::exp(widened(before[i]) - top) / total - (i == target),
                   expected = p * static_cast<double>(kScale);
      wrong +=
          !(std::abs(widened(row[i]) - expected) <= ulp * std::abs(expected) + (i == target ? 3e-7 : 1e-25));
    }
    BOOST_TEST(wrong == 0u, what << ", " << r.name << ", n " << n << ": " << wrong << " gradients");
    // The bits do not depend on the width of the vectors; without FMA they may.
    if (std::strcmp(r.name, "baseline") == 0) continue;
    if (widest.empty()) widest = row;
    BOOST_TEST(std::memcmp(widest.data(), row.data(), n * sizeof(T)) == 0, what << ", " << r.name);
  }
}

using Types = std::tuple<float, Half>;

BOOST_AUTO_TEST_SUITE(cuda_loss_rows)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_length_is_computed_by_every_variant, T, Types) {
  for (std::size_t n = 1; n < 140; ++n) check<T>(normal(n, 1, 3), n / 2, 1e-6, "normal");
  for (std::size_t n : {1000u, 1024u, 2048u, 2049u, 5000u, 32768u, 50257u, 262147u})
    check<T>(normal(n, 2, 3), n - 1, 1e-6, "normal");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(logits_may_be_large_far_apart_or_minus_infinity, T, Types) {
  for (std::size_t n : {33u, 5000u}) {
    check<T>(normal(n, 3, 30), 0, 2e-6, "wide");
    check<T>(normal(n, 4, 3, 30), 0, 2e-6, "around 30");
    check<T>(normal(n, 5, 3, -300), 0, 2e-5, "around -300");
    std::vector<double> v(n, -0.0);
    check<T>(v, 5, 1e-6, "equal");
    v[n - 1] = 40;  // the reference changes in the last block
    check<T>(v, n - 1, 1e-6, "one is certain");
    check<T>(v, 0, 1e-6, "another one is certain");
    for (std::size_t i = 0; i + 7 < n; ++i) v[i] = -INFINITY;
    check<T>(v, n - 2, 1e-6, "begins with -inf");
    std::vector<double> rising(n);
    for (std::size_t i = 0; i < n; ++i)
      rising[i] = -50 + 60.0 * static_cast<double>(i) / static_cast<double>(n);
    check<T>(rising, 3, 1e-6, "rising");
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(values_that_are_not_finite_make_the_loss_non_finite, T, Types) {
  for (const LossRows& r : runnable_loss_rows())
    for (std::size_t n : {3u, 32u, 33u, 5000u})
      for (std::size_t at : {std::size_t{0}, n / 2, n - 1})
        for (double bad : {std::nan(""), -std::nan(""), HUGE_VAL}) {
          std::vector<double> v(n, -1.0);
          v[at] = bad;
          std::vector<T> row = row_of<T>(v);
          const double loss = function<T>(r)(n, row.data(), at == 1 ? 0 : 1, 1.0f);
          BOOST_TEST(!std::isfinite(loss), r.name << ", n " << n << ", " << bad << " at " << at);
        }
  for (const LossRows& r : runnable_loss_rows())
    for (double all : {-HUGE_VAL, -2097152.0}) {
      std::vector<T> row = row_of<T>(std::vector<double>(70, all));
      BOOST_TEST(!std::isfinite(function<T>(r)(70, row.data(), 0, 1.0f)), r.name << ", all " << all);
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cuda::host
