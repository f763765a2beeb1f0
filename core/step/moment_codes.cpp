// See moment_codes.hpp.
#include "core/step/moment_codes.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <memory>

#include "core/model/dynamic_map.hpp"

namespace trainhost::step {
namespace {

float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

std::unique_ptr<MomentCodes> make_codes(bool is_signed) {
  auto c = std::make_unique<MomentCodes>();
  c->value = dynamic_map(is_signed);
  for (std::size_t i = 0; i < 255; ++i) c->highest[i] = (c->value[i] + c->value[i + 1]) / 2.0f;
  c->highest[255] = std::numeric_limits<float>::infinity();
  const auto nearest = [&](float x) {
    return static_cast<std::uint8_t>(std::lower_bound(c->highest.begin(), c->highest.end(), x) -
                                     c->highest.begin());
  };
  for (std::uint32_t cell = 0; cell < c->first.size(); ++cell) {
    // The floats of a cell are between these two; of negative ones the second has the larger magnitude.
    float low = float_of(cell << 16), high = float_of(cell << 16 | 0xffff);
    if (cell >= 0x8000) std::swap(low, high);
    if (!(std::abs(low) <= 1.0f || std::abs(high) <= 1.0f)) continue;  // outside [-1, 1], or NaN
    c->first[cell] = nearest(low);
    assert(nearest(std::min(high, 1.0f)) <= c->first[cell] + 1);
  }
  return c;
}

}  // namespace

const MomentCodes& moment_codes(bool is_signed) {
  static const std::unique_ptr<const MomentCodes> with_sign = make_codes(true), without = make_codes(false);
  return is_signed ? *with_sign : *without;
}

float encode_moments(const MomentCodes& codes, std::uint64_t n, const float* values, std::uint8_t* out) {
  float scale = 0;
  for (std::uint64_t i = 0; i < n; ++i) scale = std::max(scale, std::abs(values[i]));
  const float inverse = 1.0f / std::max(scale, 1.17549435e-38f);
  for (std::uint64_t i = 0; i < n; ++i) out[i] = codes.code(std::clamp(values[i] * inverse, -1.0f, 1.0f));
  return scale;
}

}  // namespace trainhost::step
