// Loops that the compiler vectorises: no branches in the loop body, and sums in kLanes independent
// accumulators, which also fixes the order of additions for every instruction set. Compiled with
// -ffp-contract=fast, so AVX2 and AVX-512 use FMA and may differ from baseline x86-64 in the last bit. See
// host_loops.hpp.
#include "plugins/cuda/host/host_loops.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

// Function multiversioning: one source, one copy per instruction set, selected by an ifunc when the library
// is loaded. Off under sanitizers, which are not initialised when ifuncs are resolved.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__) || \
    !defined(__x86_64__)
#define TRAINHOST_CLONES
#else
#define TRAINHOST_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#define TRAINHOST_INLINE inline __attribute__((always_inline))

namespace trainhost::cuda::host {
namespace {

TRAINHOST_INLINE float as_float(float x) { return x; }
TRAINHOST_INLINE float as_float(Half x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
TRAINHOST_INLINE void put(float& to, float x) { to = x; }
/// Rounds to nearest, ties to even: adds half a unit of the last kept bit, minus one if that bit is 0. A NaN
/// keeps its upper bits with the quiet bit set, because the addition could overflow into the sign.
TRAINHOST_INLINE void put(Half& to, float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to = static_cast<Half>((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

constexpr std::uint64_t kLanes = 16;  // independent accumulators: one AVX-512 register

}  // namespace

TRAINHOST_CLONES void add(std::uint64_t n, const float* from, float* to) {
  for (std::uint64_t i = 0; i < n; ++i) to[i] += from[i];
}
TRAINHOST_CLONES void add(std::uint64_t n, const Half* from, float* to) {
  for (std::uint64_t i = 0; i < n; ++i) to[i] += as_float(from[i]);
}
TRAINHOST_CLONES void to_half(std::uint64_t n, const float* from, Half* to) {
  for (std::uint64_t i = 0; i < n; ++i) put(to[i], from[i]);
}
TRAINHOST_CLONES void to_float(std::uint64_t n, const Half* from, float* to) {
  for (std::uint64_t i = 0; i < n; ++i) to[i] = as_float(from[i]);
}

TRAINHOST_CLONES double squares(std::uint64_t n, const float* x) {
  double total = 0;
  constexpr std::uint64_t kBlock = 64 * kLanes;
  for (std::uint64_t begin = 0; begin < n; begin += kBlock) {
    const std::uint64_t count = std::min(kBlock, n - begin), whole = count / kLanes * kLanes;
    float sums[kLanes] = {};
    for (std::uint64_t i = 0; i < whole; i += kLanes)
      for (std::uint64_t j = 0; j < kLanes; ++j) sums[j] += x[begin + i + j] * x[begin + i + j];
    for (float s : sums) total += s;
    for (std::uint64_t i = whole; i < count; ++i) total += static_cast<double>(x[begin + i]) * x[begin + i];
  }
  return total;
}

TRAINHOST_CLONES void adamw(std::uint64_t n, const float* g, float* w, float* m, float* v, const Adam& c) {
  for (std::uint64_t i = 0; i < n; ++i) {
    const float grad = g[i] * c.grad_scale;
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * grad;
    v[i] = c.beta2 * v[i] + c.one_minus_beta2 * grad * grad;
    w[i] = w[i] * c.decay - c.step_size * m[i] / (std::sqrt(v[i]) * c.inv_sqrt_bias2 + c.eps);
  }
}
TRAINHOST_CLONES void sgd(std::uint64_t n, const float* g, float* w, const Sgd& c) {
  for (std::uint64_t i = 0; i < n; ++i) w[i] = w[i] * c.decay - c.lr * (g[i] * c.grad_scale);
}
TRAINHOST_CLONES void sgd_momentum(std::uint64_t n, const float* g, float* w, float* m, const Sgd& c) {
  for (std::uint64_t i = 0; i < n; ++i) {
    m[i] = c.momentum * m[i] + g[i] * c.grad_scale;
    w[i] = w[i] * c.decay - c.lr * m[i];
  }
}
TRAINHOST_CLONES void lion(std::uint64_t n, const float* g, float* w, float* m, const Lion& c) {
  for (std::uint64_t i = 0; i < n; ++i) {
    const float grad = g[i] * c.grad_scale, direction = c.beta1 * m[i] + c.one_minus_beta1 * grad;
    const float sign = (direction > 0.0f ? 1.0f : 0.0f) - (direction < 0.0f ? 1.0f : 0.0f);
    m[i] = c.beta2 * m[i] + c.one_minus_beta2 * grad;
    w[i] = w[i] * c.decay - c.lr * sign;
  }
}

TRAINHOST_CLONES void muon_momentum(std::uint64_t n, const float* g, float* m, float* x, float grad_scale,
                                    float beta, float rest) {
  for (std::uint64_t i = 0; i < n; ++i) {
    const float grad = g[i] * grad_scale;
    m[i] = beta * m[i] + rest * grad;
    x[i] = rest * grad + beta * m[i];
  }
}
TRAINHOST_CLONES void muon_apply(std::uint64_t n, const float* x, float* w, float decay, float step) {
  for (std::uint64_t i = 0; i < n; ++i) w[i] = w[i] * decay - step * x[i];
}

namespace {

/// The scale is at least FLT_MIN in the division, so that a block of zeros has codes.
TRAINHOST_INLINE void encode(std::uint64_t n, const float* x, const Moment8bit& to) {
  float scale = 0;
  for (std::uint64_t i = 0; i < n; ++i) scale = std::max(scale, std::fabs(x[i]));
  *to.scale = scale;
  const float inverse = 1.0f / std::max(scale, 1.17549435e-38f);
  for (std::uint64_t i = 0; i < n; ++i)
    to.codes[i] = to.map.code(std::min(std::max(x[i] * inverse, -1.0f), 1.0f));
}

TRAINHOST_INLINE float adafactor_change(float g, float moment, float row_factor, const Adafactor& c) {
  return g * c.grad_scale / std::sqrt(std::max(row_factor * moment, c.smallest));
}

}  // namespace

TRAINHOST_CLONES void adamw_8bit(std::uint64_t n, const float* g, float* w, const Moment8bit& m,
                                 const Moment8bit& v, const Adam& c) {
  float first[256], second[256];
  for (std::uint64_t i = 0; i < n; ++i) first[i] = m.map.value[m.codes[i]] * *m.scale;
  for (std::uint64_t i = 0; i < n; ++i) second[i] = v.map.value[v.codes[i]] * *v.scale;
  adamw(n, g, w, first, second, c);
  encode(n, first, m), encode(n, second, v);
}

TRAINHOST_CLONES void add_squares(std::uint64_t n, const float* x, double* sums) {
  for (std::uint64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]) * x[i];
}
TRAINHOST_CLONES double adafactor_squares(std::uint64_t n, const float* g, const float* moment,
                                          float row_factor, const Adafactor& c) {
  double sums[kLanes] = {}, total = 0;
  const std::uint64_t whole = n / kLanes * kLanes;
  for (std::uint64_t i = 0; i < whole; i += kLanes)
    for (std::uint64_t j = 0; j < kLanes; ++j) {
      const float u = adafactor_change(g[i + j], moment[i + j], row_factor, c);
      sums[j] += static_cast<double>(u) * u;
    }
  for (std::uint64_t i = whole; i < n; ++i) {
    const float u = adafactor_change(g[i], moment[i], row_factor, c);
    total += static_cast<double>(u) * u;
  }
  for (double s : sums) total += s;
  return total;
}
TRAINHOST_CLONES void adafactor(std::uint64_t n, const float* g, const float* moment, float row_factor,
                                float* w, const Adafactor& c) {
  for (std::uint64_t i = 0; i < n; ++i)
    w[i] = w[i] * c.decay - c.step * adafactor_change(g[i], moment[i], row_factor, c);
}

}  // namespace trainhost::cuda::host
