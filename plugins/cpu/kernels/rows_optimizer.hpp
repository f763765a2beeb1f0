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
