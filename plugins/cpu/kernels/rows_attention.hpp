// Softmax inside attention tiles, forward and backward, and the cross-entropy of one row of logits. The
// matrix products of attention are in small_product.hpp. Part of kernels_isa.cpp; see kernel_table.hpp for
// shapes and meanings.
#pragma once

// Columns [lo, hi) of row i that its query attends to: keys up to its own position, at most `window` of them,
// none before its document.
TH_INLINE void visible(const AttentionTile& t, std::uint32_t i, std::uint32_t& lo, std::uint32_t& hi) {
  std::int64_t q = std::int64_t{t.q0} + i;
  std::int64_t last = q - t.k0 + 1, first = t.window ? q - t.window + 1 - t.k0 : 0;
  if (t.starts && t.starts[i] - std::int64_t{t.k0} > first) first = t.starts[i] - std::int64_t{t.k0};
  last = last < 0 ? 0 : last > t.cols ? t.cols : last;
  first = first < 0 ? 0 : first > last ? last : first;
  lo = static_cast<std::uint32_t>(first);
  hi = static_cast<std::uint32_t>(last);
}
TH_INLINE void clear(float* p, std::uint32_t from, std::uint32_t to) {
  for (std::uint32_t j = from; j < to; ++j) p[j] = 0.0f;
}
template <class T>
TH_INLINE float row_max(const T* p, std::uint64_t n) {
  std::uint64_t j = 0;
  float m = -__builtin_inff();
  if (n >= kLanes) {
    Vec v = load(p);
    for (j = kLanes; j + kLanes <= n; j += kLanes) v = max(v, load(p + j));
    return max(max(v, load(p + n - kLanes)));  // the last elements, some of them again
  }
  for (; j < n; ++j) m = value_of(p[j]) > m ? value_of(p[j]) : m;
  return m;
}
// p becomes e^(p*scale - shift); returns the sum.
TH_INLINE float exp_row(float* p, std::uint64_t n, float scale, float shift) {
  scale *= kLog2E, shift *= kLog2E;
  Vec s{};
  std::uint64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Vec e = exp2(load(p + j) * scale - shift);
    store(p + j, e);
    s += e;
  }
  if (j < n) {
    store_part(p + j, exp2(load_part(p + j, n - j) * scale - shift), n - j);
    s += load_part(p + j, n - j);
  }
  return sum(s);
}

// Online softmax of one score tile. If the maximum of a row grows, its sum and its row of o are rescaled by
// exp(old maximum - new maximum). A row without visible keys in the tile is left alone. Scores are scaled
// here, not in the product. Some rows at a time, first all maxima, then all exponentials: the operations of
// one row depend on each other, those of different rows overlap.
static void softmax_tile(const AttentionTile& t, float* s, float* m, float* l, bool first, float* o,
                         std::uint64_t ldo, std::uint32_t d) {
  constexpr std::uint32_t kTogether = 8;
  std::uint32_t lo[kTogether], hi[kTogether];
  float top[kTogether], total[kTogether];
  for (std::uint32_t r = 0; r < t.rows; r += kTogether, s += kTogether * t.ld) {
    const std::uint32_t rows = t.rows - r < kTogether ? t.rows - r : kTogether;
    for (std::uint32_t i = 0; i < rows; ++i) {
      float* row = s + i * t.ld;
      visible(t, r + i, lo[i], hi[i]);
      clear(row, 0, lo[i]);
      clear(row, hi[i], t.cols);
      const float before = first ? -__builtin_inff() : m[r + i],
                  here = row_max(row + lo[i], hi[i] - lo[i]) * t.scale;
      top[i] = here > before ? here : before;
    }
    for (std::uint32_t i = 0; i < rows; ++i)
      total[i] = exp_row(s + i * t.ld + lo[i], hi[i] - lo[i], t.scale, top[i]);
    for (std::uint32_t i = 0; i < rows; ++i) {
      float &max_before = m[r + i], &sum_before = l[r + i];
      if (first) {
        max_before = top[i], sum_before = total[i];
        continue;
      }
      if (max_before == top[i]) {
        sum_before += total[i];
        continue;
      }
      const float shrink = exp(splat(max_before - top[i]))[0];  // 0 for a row without previous keys
      sum_before = sum_before * shrink + total[i];
      max_before = top[i];
      float* out = o + (r + i) * ldo;
      std::uint64_t j = 0;
      for (; j + kLanes <= d; j += kLanes) store(out + j, load(out + j) * shrink);
      for (; j < d; ++j) out[j] *= shrink;
    }
  }
}

static void softmax_finish(std::uint32_t rows, std::uint32_t d, float* o, std::uint64_t ldo, const float* m,
                           const float* l, float* lse, std::uint64_t lse_ld) {
  for (std::uint32_t i = 0; i < rows; ++i, o += ldo) {
    float inverse = 1.0f / l[i];
    for (std::uint32_t j = 0; j < d; ++j) o[j] *= inverse;
    lse[i * lse_ld] = m[i] + static_cast<float>(log(static_cast<double>(l[i])));
  }
}

// With p = exp(s * scale - lse): ds = p * (dp - delta) * scale.
static void softmax_bwd_tile(const AttentionTile& t, float* s, float* dp, const float* lse,
                             std::uint64_t lse_ld, const float* delta) {
  for (std::uint32_t i = 0; i < t.rows; ++i, s += t.ld, dp += t.ld) {
    std::uint32_t lo, hi;
    visible(t, i, lo, hi);
    clear(s, 0, lo), clear(dp, 0, lo);
    clear(s, hi, t.cols), clear(dp, hi, t.cols);
    const float scale = t.scale * kLog2E, shift = lse[i * lse_ld] * kLog2E, mean = delta[i];
    std::uint32_t j = lo;
    for (; j + kLanes <= hi; j += kLanes) {
      Vec p = exp2(load(s + j) * scale - shift);
      store(s + j, p);
      store(dp + j, p * (load(dp + j) - mean) * t.scale);
    }
    if (j < hi) {
      Vec p = exp2(load_part(s + j, hi - j) * scale - shift);
      store_part(s + j, p, hi - j);
      store_part(dp + j, p * (load_part(dp + j, hi - j) - mean) * t.scale, hi - j);
    }
  }
}

template <class T>
static void row_dots(std::uint32_t rows, std::uint32_t d, const T* a, std::uint64_t lda, const T* b,
                     std::uint64_t ldb, float* delta) {
  for (std::uint32_t i = 0; i < rows; ++i) delta[i] = dot(d, a + i * lda, b + i * ldb);
}

// The sum of e^(p - shift); p is not changed.
template <class T>
TH_INLINE float sum_exp(const T* p, std::uint64_t n, float shift) {
  shift *= kLog2E;
  Vec s{};
  std::uint64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) s += exp2(load(p + j) * kLog2E - shift);
  if (j < n) {
    float last[kLanes] = {};
    store_part(last, exp2(load_part(p + j, n - j) * kLog2E - shift), n - j);
    s += load(last);
  }
  return sum(s);
}

TH_INLINE void scale_exp(float* row, std::uint64_t n, float factor, float) {
  std::uint64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store(row + j, load(row + j) * factor);
  for (; j < n; ++j) row[j] *= factor;
}
// Rounded once: e^(row - top) is computed again, not stored between the two passes.
TH_INLINE void scale_exp(Bf16* row, std::uint64_t n, float factor, float top) {
  top *= kLog2E;
  std::uint64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) store(row + j, exp2(load(row + j) * kLog2E - top) * factor);
  if (j < n) store_part(row + j, exp2(load_part(row + j, n - j) * kLog2E - top) * factor, n - j);
}
TH_INLINE float exp_and_sum(float* row, std::uint64_t n, float top) { return exp_row(row, n, 1.0f, top); }
TH_INLINE float exp_and_sum(const Bf16* row, std::uint64_t n, float top) { return sum_exp(row, n, top); }
TH_INLINE void set_value(float* to, float x) { *to = x; }
TH_INLINE void set_value(Bf16* to, float x) { store_part(to, splat(x), 1); }

// Without a gradient the row is not changed: the exponentials are only summed.
template <class T>
static double cross_entropy(std::uint64_t n, T* row, std::int32_t target, float scale, bool gradient) {
  if (target < 0) {
    if (gradient)
      for (std::uint64_t j = 0; j < n; ++j) row[j] = T{};
    return 0.0;
  }
  const float top = row_max(row, n), at_target = value_of(row[target]);
  float total;
  if (gradient) {
    total = exp_and_sum(row, n, top);
    const float k = scale / total;
    scale_exp(row, n, k, top);
    // In bf16 not from the rounded value: the difference is small where the model is right.
    const float own = sizeof(T) == 2 ? exp(splat(at_target - top))[0] * k : value_of(row[target]);
    set_value(row + target, own - scale);
  } else {
    total = sum_exp(row, n, top);
  }
  return log(static_cast<double>(total)) + (static_cast<double>(top) - static_cast<double>(at_target));
}

template <class T>
static float row_sum_exp(std::uint64_t n, T* row, float* top) {
  *top = row_max(row, n);
  return exp_and_sum(row, n, *top);
}

static void scaled_exp(std::uint64_t n, float* row, float top, float factor) {
  exp_row(row, n, 1.0f, top);
  scale_exp(row, n, factor, top);
}
static void scaled_exp(std::uint64_t n, Bf16* row, float top, float factor) {
  scale_exp(row, n, factor, top);
}
