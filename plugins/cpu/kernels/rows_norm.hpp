// RMSNorm, rotary positions and SwiGLU over rows, forward and backward. Part of kernels_isa.cpp, which
// includes it once per instruction set; no threads. T: float or Bf16, as rows are stored; arithmetic is f32.
// See kernel_table.hpp for shapes and meanings.
#pragma once

template <class T>
static void rms_norm(std::uint64_t rows, std::uint64_t n, const T* x, const T* w, float eps, T* y,
                     float* rstd) {
  for (std::uint64_t r = 0; r < rows; ++r, x += n, y += n) {
    float scale = 1.0f / __builtin_sqrtf(dot(n, x, x) / static_cast<float>(n) + eps);
    rstd[r] = scale;
    std::uint64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) store(y + j, load(x + j) * scale * load(w + j));
    if (j < n) store_part(y + j, load_part(x + j, n - j) * scale * load_part(w + j, n - j), n - j);
  }
}

// With xh = x * rstd and g = w * dy: dx = rstd * (g - xh * mean(g * xh)), gw += dy * xh.
template <class T>
static void rms_norm_bwd(std::uint64_t rows, std::uint64_t n, const T* dy, const T* x, const float* rstd,
                         const T* w, T* dx, bool add, float* gw) {
  for (std::uint64_t r = 0; r < rows; ++r, x += n, dy += n, dx += n) {
    Vec s{};
    std::uint64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) s = load(x + j) * (load(dy + j) * load(w + j)) + s;
    if (j < n) s = load_part(x + j, n - j) * (load_part(dy + j, n - j) * load_part(w + j, n - j)) + s;
    float k = rstd[r], c = sum(s) * k * k / static_cast<float>(n);  // mean(g * xh) * rstd
    for (j = 0; j + kLanes <= n; j += kLanes) {
      Vec xv = load(x + j), g = load(dy + j);
      Vec d = (g * load(w + j) - xv * c) * k;
      store(gw + j, g * (xv * k) + load(gw + j));
      store(dx + j, add ? d + load(dx + j) : d);
    }
    if (j < n) {
      std::uint64_t t = n - j;
      Vec xv = load_part(x + j, t), g = load_part(dy + j, t);
      Vec d = (g * load_part(w + j, t) - xv * c) * k;
      store_part(gw + j, g * (xv * k) + load_part(gw + j, t), t);
      store_part(dx + j, add ? d + load_part(dx + j, t) : d, t);
    }
  }
}

// Rotates the pair (i, i + D/2) of each head by the angle of the row's position (half-split convention).
template <class T>
static void rope(std::uint64_t rows, std::uint32_t heads, std::uint32_t d, std::uint64_t ld, T* x,
                 const float* table, std::uint64_t first_pos, std::uint64_t period, float sign) {
  const std::uint64_t half = d / 2;
  std::uint64_t pos = first_pos % period;
  for (std::uint64_t r = 0; r < rows; ++r, x += ld) {
    const float *cos = table + pos * d, *sin = cos + half;
    for (std::uint32_t h = 0; h < heads; ++h) {
      T *a = x + std::uint64_t{h} * d, *b = a + half;
      std::uint64_t j = 0;
      for (; j + kLanes <= half; j += kLanes) {
        Vec c = load(cos + j), s = load(sin + j) * sign, u = load(a + j), v = load(b + j);
        store(a + j, u * c - v * s);
        store(b + j, v * c + u * s);
      }
      if (j < half) {
        std::uint64_t t = half - j;
        Vec c = load_part(cos + j, t), s = load_part(sin + j, t) * sign, u = load_part(a + j, t),
            v = load_part(b + j, t);
        store_part(a + j, u * c - v * s, t);
        store_part(b + j, v * c + u * s, t);
      }
    }
    if (++pos == period) pos = 0;
  }
}

TH_INLINE Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp(-x)); }

template <class T>
static void swiglu(std::uint64_t rows, std::uint64_t n, const T* gu, T* a) {
  for (std::uint64_t r = 0; r < rows; ++r, gu += 2 * n, a += n) {
    std::uint64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      Vec g = load(gu + j);
      store(a + j, g * sigmoid(g) * load(gu + n + j));
    }
    if (j < n) {
      Vec g = load_part(gu + j, n - j);
      store_part(a + j, g * sigmoid(g) * load_part(gu + n + j, n - j), n - j);
    }
  }
}

// silu'(g) = s * (1 + g * (1 - s)), s = sigmoid(g)
TH_INLINE void swiglu_grad(Vec da, Vec g, Vec u, Vec& dg, Vec& du) {
  Vec s = sigmoid(g), silu = g * s;
  dg = da * u * (s + silu * (1.0f - s));
  du = da * silu;
}

template <class T>
static void swiglu_bwd(std::uint64_t rows, std::uint64_t n, const T* da, T* gu) {
  for (std::uint64_t r = 0; r < rows; ++r, gu += 2 * n, da += n) {
    Vec dg, du;
    std::uint64_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      swiglu_grad(load(da + j), load(gu + j), load(gu + n + j), dg, du);
      store(gu + j, dg);
      store(gu + n + j, du);
    }
    if (j < n) {
      std::uint64_t t = n - j;
      swiglu_grad(load_part(da + j, t), load_part(gu + j, t), load_part(gu + n + j, t), dg, du);
      store_part(gu + j, dg, t);
      store_part(gu + n + j, du, t);
    }
  }
}
