// Initial weights from a counter-based generator: element i of a tensor depends only on (seed, name, i), so
// any device can fill any part in any order. Uses only +, -, *, / and sqrt in double, which IEEE 754 rounds
// equally on all machines (this file is compiled without contraction to FMA); results of libm differ in the
// last bit.
#include "core/model/tensors.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"

namespace trainhost {
namespace {

constexpr double kPi = 3.14159265358979323846, kLn2 = 0.69314718055994530942;

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that decorrelates consecutive counters.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Coefficients of the series below: {1/1, 1/3, ...}, {1/(1*2), 1/(3*4), ...}, {1/(2*3), 1/(4*5), ...}.
constexpr int kLogTerms = 11, kCosTerms = 8;
struct Series {
  double log[kLogTerms], cos[kCosTerms], sin[kCosTerms];
  constexpr Series() : log(), cos(), sin() {
    for (int k = 0; k < kLogTerms; ++k) log[k] = 1.0 / (2 * k + 1);
    for (int k = 0; k < kCosTerms; ++k)
      cos[k] = 1.0 / ((2 * k + 1) * (2 * k + 2)), sin[k] = 1.0 / ((2 * k + 2) * (2 * k + 3));
  }
};
constexpr Series kSeries;

/// ln x for x in (0, 1]: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh(s), s = (m-1)/(m+1), |s|
/// < 0.172. Terms below 1e-17 are omitted.
double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 1.41421356237309504880) m *= 0.5, ++exponent;
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 0;
  for (int k = kLogTerms - 1; k >= 0; --k) sum = sum * z + kSeries.log[k];
  return 2 * s * sum + exponent * kLn2;
}

/// (cos, sin) of 2*pi*u for u in [0, 1): reduced to within 1/8 of the nearest multiple of 1/4, then Taylor
/// series.
std::pair<double, double> cos_sin(double u) {
  const int quarter = static_cast<int>(u * 4 + 0.5);
  const double x = (u - quarter * 0.25) * (2 * kPi), z = x * x;
  double c = 1, s = 1;
  for (int k = kCosTerms - 1; k >= 0; --k) {
    c = 1 - c * z * kSeries.cos[k];
    s = 1 - s * z * kSeries.sin[k];
  }
  s *= x;
  switch (quarter & 3) {
    case 0:
      return {c, s};
    case 1:
      return {-s, c};
    case 2:
      return {-c, -s};
    default:
      return {s, -c};
  }
}

constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

/// The number of element i, uniform in [0, 1).
double uniform(std::uint64_t key, std::uint64_t i) {
  return static_cast<double>(mix(key + kGolden * (i + 1)) >> 11) * kUnit;
}

/// Two independent N(0, 1) numbers (Box and Muller 1958), for elements 2*pair and 2*pair + 1.
std::pair<double, double> normal_pair(std::uint64_t key, std::uint64_t pair) {
  const std::uint64_t a = mix(key + kGolden * (2 * pair + 1)), b = mix(key + kGolden * (2 * pair + 2));
  const double u1 = static_cast<double>((a >> 11) + 1) * kUnit;  // (0, 1]
  const double u2 = static_cast<double>(b >> 11) * kUnit;        // [0, 1)
  const double radius = std::sqrt(-2 * log_of(u1));
  const auto [c, s] = cos_sin(u2);
  return {radius * c, radius * s};
}

enum class Fill { kZero, kOne, kNormal, kUniform };

Fill fill_of(const TensorInfo& t) {
  assert(t.part != AdapterPart::kMagnitude && "follows from the weights");
  // An adapter begins without effect: B is 0. A as torch.nn.Linear, by kaiming_uniform_ with a = sqrt(5).
  // Of an embedding A is 0, and B as torch.randn().
  if (t.part != AdapterPart::kNone && t.role == TensorRole::kEmbed)
    return t.part == AdapterPart::kA ? Fill::kZero : Fill::kNormal;
  if (t.part != AdapterPart::kNone) return t.part == AdapterPart::kA ? Fill::kUniform : Fill::kZero;
  switch (t.role) {
    case TensorRole::kNorm1:
    case TensorRole::kNorm2:
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
    case TensorRole::kFinalNorm:
      return Fill::kOne;
    case TensorRole::kQBias:
    case TensorRole::kKBias:
    case TensorRole::kVBias:
    case TensorRole::kOBias:
    case TensorRole::kGateBias:
    case TensorRole::kUpBias:
    case TensorRole::kDownBias:
      return Fill::kZero;
    case TensorRole::kEmbed:
    case TensorRole::kQ:
    case TensorRole::kK:
    case TensorRole::kV:
    case TensorRole::kO:
    case TensorRole::kGate:
    case TensorRole::kUp:
    case TensorRole::kDown:
    case TensorRole::kHead:
      break;
  }
  return Fill::kNormal;
}

}  // namespace

void init_tensor(const ModelSpec& m, const TensorInfo& t, std::uint64_t seed, std::uint64_t first,
                 std::span<float> out) {
  const Fill fill = fill_of(t);
  if (fill == Fill::kZero || fill == Fill::kOne) {
    std::fill(out.begin(), out.end(), fill == Fill::kOne ? 1.0f : 0.0f);
    return;
  }
  const std::uint64_t key = mix(fnv1a(t.name) ^ mix(seed));
  if (fill == Fill::kUniform) {
    const double bound = 1 / std::sqrt(static_cast<double>(t.dim[1]));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>((2 * uniform(key, first + i) - 1) * bound);
    return;
  }
  const double sigma = t.part == AdapterPart::kNone ? m.initializer_range : 1.0;
  for (std::size_t i = 0; i < out.size();) {
    const std::uint64_t element = first + i;
    const auto [even, odd] = normal_pair(key, element / 2);
    if (element % 2 == 0) out[i++] = static_cast<float>(even * sigma);
    if (i < out.size()) out[i++] = static_cast<float>(odd * sigma);
  }
}

}  // namespace trainhost
