// The kernels of the plain trainer, one function per operation, as core/executor/kernels.hpp documents them.
// Indices: r row, i and j columns, h head, q query, k key. No memory and no order of operations: the executor
// has both. Next: plain_trainer.cpp, check.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/executor/kernels.hpp"

namespace plain {

namespace ex = trainhost::executor;
using Size = std::uint64_t;

// y[n] += a * x[n], the inner loop of most kernels below.
inline void add_scaled(Size n, float a, const float* __restrict x, float* __restrict y) {
  for (Size i = 0; i < n; ++i) y[i] += a * x[i];
}

// Eight partial sums, which the compiler keeps in one vector register; added at the end in fixed order.
inline float dot(Size n, const float* a, const float* b) {
  float part[8] = {};
  Size i = 0;
  for (; i + 8 <= n; i += 8)
    for (Size l = 0; l < 8; ++l) part[l] += a[i + l] * b[i + l];
  float sum = 0.0f;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (float p : part) sum += p;
  return sum;
}

class Kernels {
 public:
  static constexpr const char *id = "plain", *version = "1.0";

  // ---- embedding: rows of a table, and their gradients

  void embed(const ex::Embed& a) {
    for (Size r = 0; r < a.rows; ++r)
      std::copy_n(a.table + static_cast<Size>(a.ids[r]) * a.hidden, a.hidden, a.x + r * a.hidden);
  }

  void embed_bwd(const ex::EmbedBwd& a) {
    if (a.overwrite) std::fill_n(a.grad, a.vocab * a.hidden, 0.0f);
    for (Size r = 0; r < a.rows; ++r)
      add_scaled(a.hidden, 1.0f, a.dx + r * a.hidden, a.grad + static_cast<Size>(a.ids[r]) * a.hidden);
  }

  // ---- RMSNorm over rows, and over the heads of a row

  void rms_norm(const ex::RmsNorm& a) {
    for (Size r = 0; r < a.rows; ++r)
      a.rstd[r] = norm(a.cols, a.x + r * a.cols, a.w, a.eps, a.y + r * a.cols);
  }

  void rms_norm_bwd(const ex::RmsNormBwd& a) {
    if (a.overwrite) std::fill_n(a.grad_w, a.cols, 0.0f);
    for (Size r = 0; r < a.rows; ++r) {
      const Size at = r * a.cols;
      norm_bwd(a.cols, a.dy + at, a.x + at, a.rstd[r], a.w, a.dx + at, a.add, a.grad_w);
    }
  }

  void qk_norm(const ex::QkNorm& a) {
    const Size d = a.heads.d, heads = a.heads.turned();
    for (Size r = 0; r < a.rows; ++r)
      for (Size h = 0; h < heads; ++h) {
        float *x = a.qkv + r * a.heads.width() + h * d, *kept = a.pre + (r * heads + h) * d;
        std::copy_n(x, d, kept);
        a.rstd[r * heads + h] = norm(d, kept, h < a.heads.heads ? a.wq : a.wk, a.eps, x);
      }
  }

  void qk_norm_bwd(const ex::QkNormBwd& a) {
    const Size d = a.heads.d, heads = a.heads.turned();
    if (a.overwrite) std::fill_n(a.grad_wq, d, 0.0f), std::fill_n(a.grad_wk, d, 0.0f);
    for (Size r = 0; r < a.rows; ++r)
      for (Size h = 0; h < heads; ++h) {
        const bool query = h < a.heads.heads;
        float* dx = a.d_qkv + r * a.heads.width() + h * d;
        norm_bwd(d, dx, a.pre + (r * heads + h) * d, a.rstd[r * heads + h], query ? a.wq : a.wk, dx, false,
                 query ? a.grad_wq : a.grad_wk);
      }
  }

  // ---- matrix products. All three read the weight [outputs, inputs] row by row.

  void linear(const ex::Linear& a) {
    for (Size r = 0; r < a.rows; ++r) {
      const float* x = a.x + r * a.inputs;
      float* y = a.y + r * a.outputs;
      for (Size j = 0; j < a.outputs; ++j) {
        y[j] = dot(a.inputs, x, a.w + j * a.inputs);
        if (a.bias) y[j] += a.bias[j];
        if (a.residual) y[j] += a.residual[r * a.outputs + j];
      }
    }
  }

  void linear_dx(const ex::LinearDx& a) {
    for (Size r = 0; r < a.rows; ++r) {
      float* dx = a.dx + r * a.inputs;
      std::fill_n(dx, a.inputs, 0.0f);
      for (Size j = 0; j < a.outputs; ++j)
        add_scaled(a.inputs, a.dy[r * a.outputs + j], a.w + j * a.inputs, dx);
    }
  }

  void linear_dw(const ex::LinearDw& a) {
    if (a.overwrite) std::fill_n(a.grad_w, a.outputs * a.inputs, 0.0f);
    if (a.overwrite && a.grad_b) std::fill_n(a.grad_b, a.outputs, 0.0f);
    for (Size r = 0; r < a.rows; ++r) {
      const float *dy = a.dy + r * a.outputs, *x = a.x + r * a.inputs;
      for (Size j = 0; j < a.outputs; ++j) add_scaled(a.inputs, dy[j], x, a.grad_w + j * a.inputs);
      if (a.grad_b) add_scaled(a.outputs, 1.0f, dy, a.grad_b);
    }
  }

  // ---- rotary position embedding; sign -1 for the backward pass

  void rope(const ex::Rope& a) {
    const Size d = a.heads.d, half = d / 2;
    for (Size r = 0; r < a.rows; ++r) {
      const float *cos = a.table + (a.first + r) % a.seq * d, *sin = cos + half;
      for (Size h = 0; h < a.heads.turned(); ++h) {
        float *x = a.qkv + r * a.heads.width() + h * d, *y = x + half;
        for (Size i = 0; i < half; ++i) {
          const float u = x[i], v = y[i], c = cos[i], s = sin[i] * a.sign;
          x[i] = u * c - v * s;
          y[i] = v * c + u * s;
        }
      }
    }
  }

  // ---- attention: one query of one head at a time. Its probabilities are one row of the scratch buffer,
  // which the default traits size for two rows of one sequence length (tile_q = 1, tile_k = seq).

  void attention(const ex::Attention& a) {
    const ex::Heads& n = a.heads;
    float* p = a.scratch;
    for_each_query(a.sequences * a.seq, a.seq, n, a.window, [&](const Query& at) {
      const float* key = a.qkv + at.key;
      a.lse[at.lse] = softmax(n, a.qkv + at.query, key, at.first, at.last, n.width(), p);
      float* o = a.o + at.out;
      std::fill_n(o, n.d, 0.0f);
      for (Size k = at.first; k <= at.last; ++k) add_scaled(n.d, p[k], a.qkv + at.value + k * n.width(), o);
    });
  }

  // With p = exp(s - lse) and dp = do . v: ds = p * (dp - do . o) / sqrt(d); then dq = ds k, dk = ds q,
  // dv = p do.
  void attention_bwd(const ex::AttentionBwd& a) {
    const ex::Heads& n = a.heads;
    const Size w = n.width();
    const float scale = 1.0f / std::sqrt(static_cast<float>(n.d));
    std::fill_n(a.d_qkv, a.sequences * a.seq * w, 0.0f);
    for_each_query(a.sequences * a.seq, a.seq, n, a.window, [&](const Query& at) {
      const float *query = a.qkv + at.query, *d_o = a.d_o + at.out;
      const float delta = dot(n.d, d_o, a.o + at.out), lse = a.lse[at.lse];
      for (Size k = at.first; k <= at.last; ++k) {
        const float* key = a.qkv + at.key + k * w;
        const float p = std::exp(dot(n.d, query, key) * scale - lse);
        const float ds = p * (dot(n.d, d_o, a.qkv + at.value + k * w) - delta) * scale;
        add_scaled(n.d, ds, key, a.d_qkv + at.query);
        add_scaled(n.d, ds, query, a.d_qkv + at.key + k * w);
        add_scaled(n.d, p, d_o, a.d_qkv + at.value + k * w);
      }
    });
  }

  // Generation: appends key and value of the token to the caches, then computes attention over the cached
  // keys.
  void attention_step(const ex::AttentionStep& a) {
    const ex::Heads& n = a.heads;
    const Size kv = n.kv_heads * n.d;
    std::copy_n(a.qkv + n.heads * n.d, kv, a.cache_k + a.position * kv);
    std::copy_n(a.qkv + n.heads * n.d + kv, kv, a.cache_v + a.position * kv);
    for (Size h = 0; h < n.heads; ++h) {
      const Size at = h / n.shared_by() * n.d, first = first_key(a.position, a.window);
      float *p = a.scratch + h * a.seq, *o = a.o + h * n.d;
      softmax(n, a.qkv + h * n.d, a.cache_k + at, first, a.position, kv, p);
      std::fill_n(o, n.d, 0.0f);
      for (Size k = first; k <= a.position; ++k) add_scaled(n.d, p[k], a.cache_v + k * kv + at, o);
    }
  }

  // ---- SwiGLU, the gate of the MLP

  void swiglu(const ex::SwiGlu& a) {
    for (Size r = 0; r < a.rows; ++r) {
      const float *gate = a.gate_up + r * 2 * a.cols, *up = gate + a.cols;
      for (Size j = 0; j < a.cols; ++j) a.act[r * a.cols + j] = gate[j] / (1.0f + std::exp(-gate[j])) * up[j];
    }
  }

  // silu'(g) = s * (1 + g * (1 - s)), s = sigmoid(g)
  void swiglu_bwd(const ex::SwiGluBwd& a) {
    for (Size r = 0; r < a.rows; ++r) {
      float *gate = a.gate_up + r * 2 * a.cols, *up = gate + a.cols;
      for (Size j = 0; j < a.cols; ++j) {
        const float g = gate[j], u = up[j], s = 1.0f / (1.0f + std::exp(-g)), d = a.d_act[r * a.cols + j];
        gate[j] = d * u * s * (1.0f + g * (1.0f - s));
        up[j] = d * g * s;
      }
    }
  }

  // ---- loss. Sums over the vocabulary are in double because of their length.

  double cross_entropy(const ex::CrossEntropy& a) {
    double loss = 0.0;
    for (Size r = 0; r < a.rows; ++r) {
      float* row = a.logits + r * a.vocab;
      if (a.targets[r] == -100) {
        if (a.gradient) std::fill_n(row, a.vocab, 0.0f);
        continue;
      }
      const float top = *std::max_element(row, row + a.vocab), hit = row[a.targets[r]];
      double total = 0.0;
      for (Size j = 0; j < a.vocab; ++j) total += row[j] = std::exp(row[j] - top);
      loss += std::log(total) + top - hit;
      if (!a.gradient) continue;
      const float scale = static_cast<float>(a.scale / total);
      for (Size j = 0; j < a.vocab; ++j) row[j] *= scale;
      row[a.targets[r]] -= a.scale;
    }
    return loss;
  }

  // ---- optimizer update

  double sum_squares(const ex::SumSquares& a) {
    double sum = 0.0;
    for (Size i = 0; i < a.count; ++i) sum += static_cast<double>(a.x[i]) * a.x[i];
    return sum;
  }

  void adamw(const ex::AdamW& a) {
    for (Size i = 0; i < a.count; ++i) {
      const float g = a.grad[i] * a.grad_scale;
      a.m[i] = a.beta1 * a.m[i] + a.one_minus_beta1 * g;
      a.v[i] = a.beta2 * a.v[i] + a.one_minus_beta2 * (g * g);
      a.w[i] = a.decay * a.w[i] - a.step_size * a.m[i] / (std::sqrt(a.v[i]) * a.inv_sqrt_bias2 + a.eps);
    }
  }

  void sgd(const ex::Sgd& a) {
    for (Size i = 0; i < a.count; ++i) a.w[i] = a.decay * a.w[i] - a.lr * (a.grad[i] * a.grad_scale);
  }

  void sgd_momentum(const ex::SgdMomentum& a) {
    for (Size i = 0; i < a.count; ++i) {
      a.m[i] = a.momentum * a.m[i] + a.grad[i] * a.grad_scale;
      a.w[i] = a.decay * a.w[i] - a.lr * a.m[i];
    }
  }

  void lion(const ex::Lion& a) {
    for (Size i = 0; i < a.count; ++i) {
      const float g = a.grad[i] * a.grad_scale, direction = a.beta1 * a.m[i] + a.one_minus_beta1 * g;
      a.w[i] = a.decay * a.w[i] - a.lr * static_cast<float>((direction > 0.0f) - (direction < 0.0f));
      a.m[i] = a.beta2 * a.m[i] + a.one_minus_beta2 * g;
    }
  }

 private:
  // y = x / rms(x) * w; returns 1 / rms(x). y may be x.
  static float norm(Size n, const float* x, const float* w, float eps, float* y) {
    const float rstd = 1.0f / std::sqrt(dot(n, x, x) / static_cast<float>(n) + eps);
    for (Size j = 0; j < n; ++j) y[j] = x[j] * rstd * w[j];
    return rstd;
  }

  // With v = x * rstd and g = dy * w: dx = rstd * (g - v * mean(g * v)), grad_w += dy * v. dx may be dy.
  static void norm_bwd(Size n, const float* dy, const float* x, float rstd, const float* w, float* dx,
                       bool add, float* grad_w) {
    float mean = 0.0f;
    for (Size j = 0; j < n; ++j) mean += dy[j] * w[j] * (x[j] * rstd);
    mean /= static_cast<float>(n);
    for (Size j = 0; j < n; ++j) {
      const float v = x[j] * rstd, d = rstd * (dy[j] * w[j] - v * mean);
      grad_w[j] += dy[j] * v;
      dx[j] = add ? dx[j] + d : d;
    }
  }

  // First key that the query at position q attends to; the last one is q itself.
  static Size first_key(Size q, Size window) { return window && q + 1 > window ? q + 1 - window : 0; }

  // p[first..last] = softmax of the scores of one query; returns the logarithm of the sum of their
  // exponentials. `ld`: distance of consecutive keys in floats.
  static float softmax(const ex::Heads& n, const float* query, const float* key, Size first, Size last,
                       Size ld, float* p) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(n.d));
    float top = -INFINITY, total = 0.0f;
    for (Size k = first; k <= last; ++k) top = std::max(top, p[k] = scale * dot(n.d, query, key + k * ld));
    for (Size k = first; k <= last; ++k) total += p[k] = std::exp(p[k] - top);
    for (Size k = first; k <= last; ++k) p[k] /= total;
    return top + std::log(total);
  }

  // Offsets of one query of one head: into qkv (query; first key and first value of its sequence), into o and
  // into lse. It attends to keys first..last of its sequence.
  struct Query {
    Size query, key, value, out, lse, first, last;
  };
  template <class F>
  static void for_each_query(Size rows, Size seq, const ex::Heads& n, Size window, F&& f) {
    for (Size row = 0; row < rows; ++row)
      for (Size h = 0; h < n.heads; ++h) {
        const Size q = row % seq, start = (row - q) * n.width(), kv = h / n.shared_by();
        f(Query{row * n.width() + h * n.d, start + (n.heads + kv) * n.d,
                start + (n.heads + n.kv_heads + kv) * n.d, (row * n.heads + h) * n.d, row * n.heads + h,
                first_key(q, window), q});
      }
  }
};

}  // namespace plain
