// Rotary frequencies with the scalings of the trained families. Pure numbers; the turning itself is the
// trainer's.
#include "core/model/rope.hpp"

#include <cmath>

namespace trainhost {
namespace {

constexpr double kTwoPi = 6.28318530717958647692;

/// LLaMA 3.1's scaling: short wavelengths stay, long ones are stretched by factor, those between are blended.
double llama3(double freq, const RopeScaling& r) {
  const double wavelength = kTwoPi / freq, original = static_cast<double>(r.original_max_positions);
  if (wavelength < original / r.high_freq_factor) return freq;
  if (wavelength > original / r.low_freq_factor) return freq / r.factor;
  const double keep = (original / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - keep) * freq / r.factor + keep * freq;
}

}  // namespace

std::vector<double> rope_inv_freq(const ModelSpec& m) {
  std::vector<double> out(m.head_dim / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double freq = 1.0 / std::pow(m.rope_theta, 2.0 * static_cast<double>(i) / m.head_dim);
    switch (m.rope.kind) {
      case RopeKind::kDefault:
        out[i] = freq;
        break;
      case RopeKind::kLinear:
        out[i] = freq / m.rope.factor;
        break;
      case RopeKind::kLlama3:
        out[i] = llama3(freq, m.rope);
        break;
    }
  }
  return out;
}

}  // namespace trainhost
