// One pass of an optimizer over the elements of a parameter. Part of kernels_isa.cpp. Plain loops: every
// element is independent, so the compiler vectorises them without changing a bit.
#pragma once

// Kingma & Ba 2015 with decoupled decay (Loshchilov & Hutter 2019): decay first, then the bias-corrected
// step.
static void adamw(std::uint64_t n, const float* __restrict g, float* __restrict w, float* __restrict m,
                  float* __restrict v, const AdamConstants& constants) {
  const AdamConstants c = constants;
  for (std::uint64_t i = 0; i < n; ++i) {
    float gi = g[i] * c.grad_scale;
    float mi = c.beta1 * m[i] + c.one_minus_beta1 * gi;
    float vi = c.beta2 * v[i] + c.one_minus_beta2 * (gi * gi);
    m[i] = mi;
    v[i] = vi;
    w[i] = c.decay * w[i] - c.step_size * mi / (__builtin_sqrtf(vi) * c.inv_sqrt_bias2 + c.eps);
  }
}

static void sgd(std::uint64_t n, const float* __restrict g, float* __restrict w,
                const SgdConstants& constants) {
  const SgdConstants c = constants;
  for (std::uint64_t i = 0; i < n; ++i) w[i] = c.decay * w[i] - c.lr * (g[i] * c.grad_scale);
}

static void sgd_momentum(std::uint64_t n, const float* __restrict g, float* __restrict w, float* __restrict m,
                         const SgdConstants& constants) {
  const SgdConstants c = constants;
  for (std::uint64_t i = 0; i < n; ++i) {
    float mi = c.momentum * m[i] + g[i] * c.grad_scale;
    m[i] = mi;
    w[i] = c.decay * w[i] - c.lr * mi;
  }
}

// Chen et al. 2023, algorithm 2: the sign of an interpolation with the old momentum; sign(0) = 0.
static void lion(std::uint64_t n, const float* __restrict g, float* __restrict w, float* __restrict m,
                 const LionConstants& constants) {
  const LionConstants c = constants;
  for (std::uint64_t i = 0; i < n; ++i) {
    float gi = g[i] * c.grad_scale;
    float direction = c.beta1 * m[i] + c.one_minus_beta1 * gi;
    float sign = (direction > 0.0f ? 1.0f : 0.0f) - (direction < 0.0f ? 1.0f : 0.0f);
    m[i] = c.beta2 * m[i] + c.one_minus_beta2 * gi;
    w[i] = c.decay * w[i] - c.lr * sign;
  }
}

// Codes of n values, whose scale is their largest magnitude. Magnitudes are compared as integers, which the
// compiler vectorises. The scale is at least FLT_MIN in the division: denormals are zero here.
static void encode_block(std::uint64_t n, const float* __restrict x, const MomentBlock& out,
                         const MomentTables& codes) {
  std::uint32_t top = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffffu;
    top = bits > top ? bits : top;
  }
  float scale;
  __builtin_memcpy(&scale, &top, sizeof scale);
  *out.scale = scale;
  const float inverse = 1.0f / (scale > 1.17549435e-38f ? scale : 1.17549435e-38f);
  for (std::uint64_t i = 0; i < n; ++i) {
    float y = x[i] * inverse;
    y = y > 1.0f ? 1.0f : y < -1.0f ? -1.0f : y;
    std::uint32_t bits;
    __builtin_memcpy(&bits, &y, sizeof bits);
    const std::uint8_t code = codes.first[bits >> 16];
    out.codes[i] = static_cast<std::uint8_t>(code + (y > codes.highest[code]));
  }
}

// adamw() of a block whose moments are decoded before and encoded after it (Dettmers et al. 2022).
static void adamw_8bit(std::uint64_t n, const float* g, float* w, const MomentBlock& m, const MomentBlock& v,
                       const MomentTables& m_codes, const MomentTables& v_codes,
                       const AdamConstants& constants) {
  alignas(64) float first[256], second[256];
  const float m_scale = *m.scale, v_scale = *v.scale;
  for (std::uint64_t i = 0; i < n; ++i) first[i] = m_codes.value[m.codes[i]] * m_scale;
  for (std::uint64_t i = 0; i < n; ++i) second[i] = v_codes.value[v.codes[i]] * v_scale;
  adamw(n, g, w, first, second, constants);
  encode_block(n, first, m, m_codes);
  encode_block(n, second, v, v_codes);
}

static void add_squares(std::uint64_t n, const float* __restrict g, double* __restrict sums) {
  for (std::uint64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(g[i]) * g[i];
}

// Shazeer & Stern 2018 as torch.optim.Adafactor: the square root of the second moment is at least eps1.
static float adafactor_change(float g, float moment, float factor, const AdafactorConstants& c) {
  const float estimate = factor * moment;
  return g * c.grad_scale / __builtin_sqrtf(estimate > c.smallest ? estimate : c.smallest);
}
static double adafactor_squares(std::uint64_t n, const float* __restrict g, const float* __restrict moment,
                                float factor, const AdafactorConstants& constants) {
  const AdafactorConstants c = constants;
  constexpr std::uint64_t kSums = 16;
  double sums[kSums] = {}, total = 0;
  std::uint64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (std::uint64_t j = 0; j < kSums; ++j) {
      const float u = adafactor_change(g[i + j], moment[i + j], factor, c);
      sums[j] += static_cast<double>(u) * u;
    }
  for (; i < n; ++i) {
    const float u = adafactor_change(g[i], moment[i], factor, c);
    total += static_cast<double>(u) * u;
  }
  for (double s : sums) total += s;
  return total;
}
static void adafactor(std::uint64_t n, const float* __restrict g, const float* __restrict moment,
                      float factor, float* __restrict w, const AdafactorConstants& constants) {
  const AdafactorConstants c = constants;
  for (std::uint64_t i = 0; i < n; ++i)
    w[i] = c.decay * w[i] - c.step * adafactor_change(g[i], moment[i], factor, c);
}

// torch.optim.Muon: exponential average, and Nesterov's look-ahead.
static double muon_momentum(std::uint64_t n, const float* __restrict g, float* __restrict m,
                            float* __restrict x, float beta, float one_minus_beta, float grad_scale) {
  for (std::uint64_t i = 0; i < n; ++i) {
    const float gi = g[i] * grad_scale;
    const float mi = beta * m[i] + one_minus_beta * gi;
    m[i] = mi;
    x[i] = one_minus_beta * gi + beta * mi;
  }
  return sum_squares(n, x);
}
static void muon_apply(std::uint64_t n, const float* __restrict x, float* __restrict w, float decay,
                       float step) {
  for (std::uint64_t i = 0; i < n; ++i) w[i] = decay * w[i] - step * x[i];
}
