// See reference_kernels.hpp. Letters: r row, j and i columns, h head, q query, k key. Sums are accumulated in
// double and rounded to float once per result, so that the error of a kernel under test is its own. No
// blocking and no vector instructions: the code is the definition.
#include "core/executor/reference_kernels.hpp"

#include <algorithm>
#include <cmath>

namespace trainhost::executor {
namespace {

using Size = std::uint64_t;

// The only place where precision is lost.
float narrow(double v) { return static_cast<float>(v); }

void clear(float* p, Size n) { std::fill(p, p + n, 0.0f); }

double dot(Size n, const float* a, const float* b) {
  double s = 0.0;
  for (Size i = 0; i < n; ++i) s += static_cast<double>(a[i]) * b[i];
  return s;
}

// y = x / sqrt(mean(x^2) + eps) * w; returns 1/rms. y and x may be the same buffer.
float norm_row(Size n, const float* x, const float* w, float eps, float* y) {
  const double scale = 1.0 / std::sqrt(dot(n, x, x) / static_cast<double>(n) + eps);
  for (Size j = 0; j < n; ++j) y[j] = narrow(x[j] * scale * w[j]);
  return narrow(scale);
}

// With n = x / rms: d x = (dy w - n mean(dy w n)) / rms, d w += dy n. dx and dy may be the same buffer.
void norm_row_bwd(Size n, const float* dy, const float* x, double rstd, const float* w, float* dx, bool add,
                  float* grad_w) {
  double mean = 0.0;
  for (Size j = 0; j < n; ++j) mean += static_cast<double>(dy[j]) * w[j] * x[j] * rstd;
  mean /= static_cast<double>(n);
  for (Size j = 0; j < n; ++j) {
    const double normal = x[j] * rstd, d = rstd * (static_cast<double>(dy[j]) * w[j] - normal * mean);
    grad_w[j] = narrow(grad_w[j] + dy[j] * normal);
    dx[j] = narrow((add ? dx[j] : 0.0) + d);
  }
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The first key that query q attends to: a window of W includes the query's own position, and a document
// begins at its start.
Size first_key(Size q, Size window, const std::int32_t* start = nullptr) {
  const Size in_window = window && q + 1 > window ? q + 1 - window : 0;
  return start ? std::max(in_window, static_cast<Size>(*start)) : in_window;
}

}  // namespace

void ReferenceKernels::embed(const Embed& a) {
  for (Size r = 0; r < a.rows; ++r)
    std::copy_n(a.table + static_cast<Size>(a.ids[r]) * a.hidden, a.hidden, a.x + r * a.hidden);
}

/// Rows with equal ids are added one after the other, in the order of the rows.
void ReferenceKernels::embed_bwd(const EmbedBwd& a) {
  if (a.overwrite) clear(a.grad, a.vocab * a.hidden);
  for (Size r = 0; r < a.rows; ++r)
    for (Size j = 0; j < a.hidden; ++j)
      a.grad[static_cast<Size>(a.ids[r]) * a.hidden + j] += a.dx[r * a.hidden + j];
}

void ReferenceKernels::rms_norm(const RmsNorm& a) {
  for (Size r = 0; r < a.rows; ++r)
    a.rstd[r] = norm_row(a.cols, a.x + r * a.cols, a.w, a.eps, a.y + r * a.cols);
}

void ReferenceKernels::rms_norm_bwd(const RmsNormBwd& a) {
  if (a.overwrite) clear(a.grad_w, a.cols);
  for (Size r = 0, at = 0; r < a.rows; ++r, at += a.cols)
    norm_row_bwd(a.cols, a.dy + at, a.x + at, a.rstd[r], a.w, a.dx + at, a.add, a.grad_w);
}

void ReferenceKernels::linear(const Linear& a) {
  for (Size r = 0; r < a.rows; ++r)
    for (Size j = 0; j < a.outputs; ++j) {
      const double s = dot(a.inputs, a.x + r * a.inputs, a.w + j * a.inputs);
      a.y[r * a.outputs + j] =
          narrow(s + (a.bias ? a.bias[j] : 0.0) + (a.residual ? a.residual[r * a.outputs + j] : 0.0));
    }
}

/// dx = dy W.
void ReferenceKernels::linear_dx(const LinearDx& a) {
  for (Size r = 0; r < a.rows; ++r)
    for (Size i = 0; i < a.inputs; ++i) {
      double s = 0.0;
      for (Size j = 0; j < a.outputs; ++j)
        s += static_cast<double>(a.dy[r * a.outputs + j]) * a.w[j * a.inputs + i];
      a.dx[r * a.inputs + i] = narrow(s);
    }
}

/// dW (+)= dy^T x, db (+)= sum of dy over the rows.
void ReferenceKernels::linear_dw(const LinearDw& a) {
  for (Size j = 0; j < a.outputs; ++j) {
    for (Size i = 0; i < a.inputs; ++i) {
      double s = a.overwrite ? 0.0 : a.grad_w[j * a.inputs + i];
      for (Size r = 0; r < a.rows; ++r)
        s += static_cast<double>(a.dy[r * a.outputs + j]) * a.x[r * a.inputs + i];
      a.grad_w[j * a.inputs + i] = narrow(s);
    }
    if (!a.grad_b) continue;
    double s = a.overwrite ? 0.0 : a.grad_b[j];
    for (Size r = 0; r < a.rows; ++r) s += a.dy[r * a.outputs + j];
    a.grad_b[j] = narrow(s);
  }
}

/// One norm per head over d elements; the input is kept for the backward pass. v is not normed.
void ReferenceKernels::qk_norm(const QkNorm& a) {
  const Size d = a.heads.d, turned = a.heads.turned();
  for (Size r = 0; r < a.rows; ++r)
    for (Size h = 0; h < turned; ++h) {
      float *x = a.qkv + r * a.heads.width() + h * d, *kept = a.pre + (r * turned + h) * d;
      std::copy_n(x, d, kept);
      a.rstd[r * turned + h] = norm_row(d, kept, h < a.heads.heads ? a.wq : a.wk, a.eps, x);
    }
}

void ReferenceKernels::qk_norm_bwd(const QkNormBwd& a) {
  const Size d = a.heads.d, turned = a.heads.turned();
  if (a.overwrite) clear(a.grad_wq, d), clear(a.grad_wk, d);
  for (Size r = 0; r < a.rows; ++r)
    for (Size h = 0; h < turned; ++h) {
      float* dx = a.d_qkv + r * a.heads.width() + h * d;
      const bool q = h < a.heads.heads;
      norm_row_bwd(d, dx, a.pre + (r * turned + h) * d, a.rstd[r * turned + h], q ? a.wq : a.wk, dx, false,
                   q ? a.grad_wq : a.grad_wk);
    }
}

/// Rotates the pairs (x_i, x_{i + d/2}), the layout of Hugging Face LLaMA. Rows restart at position 0 every
/// seq rows; `first` is the position of row 0 in generation.
void ReferenceKernels::rope(const Rope& a) {
  const Size d = a.heads.d, half = d / 2;
  for (Size r = 0; r < a.rows; ++r) {
    const float *cos = a.table + (a.first + r) % a.seq * d, *sin = cos + half;
    for (Size h = 0; h < a.heads.turned(); ++h)
      for (Size i = 0; i < half; ++i) {
        float* x = a.qkv + r * a.heads.width() + h * d + i;
        const double u = x[0], v = x[half], c = cos[i], s = static_cast<double>(sin[i]) * a.sign;
        x[0] = narrow(u * c - v * s), x[half] = narrow(v * c + u * s);
      }
  }
}

/// softmax(q k^T / sqrt(d)) v over the keys from first_key() to q. Three passes: maximum, sum, output. lse =
/// log of the sum of exponentials is kept, so the backward pass needs no S x S matrix (FlashAttention-2).
void ReferenceKernels::attention(const Attention& a) {
  const Heads& n = a.heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(n.d));
  for (Size row = 0; row < a.sequences * a.seq; ++row)
    for (Size h = 0; h < n.heads; ++h) {
      const Size q = row % a.seq, row0 = row - q,
                 from = first_key(q, a.window, a.starts ? a.starts + row : nullptr);
      const float* query = a.qkv + row * n.width() + h * n.d;
      const float* key = a.qkv + row0 * n.width() + (n.heads + h / n.shared_by()) * n.d;
      const float* value = key + n.kv_heads * n.d;
      double top = -INFINITY, total = 0.0;
      for (Size k = from; k <= q; ++k) top = std::max(top, scale * dot(n.d, query, key + k * n.width()));
      for (Size k = from; k <= q; ++k) total += std::exp(scale * dot(n.d, query, key + k * n.width()) - top);
      const double lse = top + std::log(total);
      a.lse[row * n.heads + h] = narrow(lse);
      float* o = a.o + (row * n.heads + h) * n.d;
      clear(o, n.d);
      for (Size k = from; k <= q; ++k) {
        const double p = std::exp(scale * dot(n.d, query, key + k * n.width()) - lse);
        for (Size i = 0; i < n.d; ++i) o[i] = narrow(o[i] + p * value[k * n.width() + i]);
      }
    }
}

/// p is recomputed from lse. With delta = dO . O: dS = p (dO . v - delta) / sqrt(d); dq = dS k, dk = dS^T q,
/// dv = p^T dO. Heads that share keys add up.
void ReferenceKernels::attention_bwd(const AttentionBwd& a) {
  const Heads& n = a.heads;
  const Size w = n.width();
  const double scale = 1.0 / std::sqrt(static_cast<double>(n.d));
  clear(a.d_qkv, a.sequences * a.seq * w);
  for (Size row = 0; row < a.sequences * a.seq; ++row)
    for (Size h = 0; h < n.heads; ++h) {
      const Size q = row % a.seq, row0 = row - q, at_q = row * w + h * n.d, at_o = (row * n.heads + h) * n.d;
      const Size at_k = row0 * w + (n.heads + h / n.shared_by()) * n.d, at_v = at_k + n.kv_heads * n.d;
      const double delta = dot(n.d, a.d_o + at_o, a.o + at_o);
      for (Size k = first_key(q, a.window, a.starts ? a.starts + row : nullptr); k <= q; ++k) {
        const double p =
            std::exp(scale * dot(n.d, a.qkv + at_q, a.qkv + at_k + k * w) - a.lse[row * n.heads + h]);
        const double ds = p * (dot(n.d, a.d_o + at_o, a.qkv + at_v + k * w) - delta) * scale;
        for (Size i = 0; i < n.d; ++i) {
          a.d_qkv[at_v + k * w + i] += narrow(p * a.d_o[at_o + i]);
          a.d_qkv[at_q + i] += narrow(ds * a.qkv[at_k + k * w + i]);
          a.d_qkv[at_k + k * w + i] += narrow(ds * a.qkv[at_q + i]);
        }
      }
    }
}

/// Appends keys and values of this position to the caches, then attends to all positions in the window.
void ReferenceKernels::attention_step(const AttentionStep& a) {
  const Heads& n = a.heads;
  const Size kv = n.kv_heads * n.d, from = first_key(a.position, a.window);
  const double scale = 1.0 / std::sqrt(static_cast<double>(n.d));
  std::copy_n(a.qkv + n.heads * n.d, kv, a.cache_k + a.position * kv);
  std::copy_n(a.qkv + n.heads * n.d + kv, kv, a.cache_v + a.position * kv);
  for (Size h = 0; h < n.heads; ++h) {
    const Size at = h / n.shared_by() * n.d;
    float *score = a.scratch + h * a.seq, *o = a.o + h * n.d;
    double top = -INFINITY, total = 0.0;
    for (Size k = from; k <= a.position; ++k) {
      score[k] = narrow(scale * dot(n.d, a.qkv + h * n.d, a.cache_k + k * kv + at));
      top = std::max(top, static_cast<double>(score[k]));
    }
    for (Size k = from; k <= a.position; ++k) total += std::exp(score[k] - top);
    clear(o, n.d);
    for (Size k = from; k <= a.position; ++k)
      for (Size i = 0; i < n.d; ++i)
        o[i] = narrow(o[i] + std::exp(score[k] - top) / total * a.cache_v[k * kv + at + i]);
  }
}

/// gate and up are the two halves of a row; act = silu(gate) * up.
void ReferenceKernels::swiglu(const SwiGlu& a) {
  for (Size r = 0; r < a.rows; ++r)
    for (Size j = 0; j < a.cols; ++j) {
      const double g = a.gate_up[r * 2 * a.cols + j], up = a.gate_up[r * 2 * a.cols + a.cols + j];
      a.act[r * a.cols + j] = narrow(g * sigmoid(g) * up);
    }
}

/// In place: the gradients replace gate and up. d silu(g) = s (1 + g (1 - s)) with s = sigmoid(g).
void ReferenceKernels::swiglu_bwd(const SwiGluBwd& a) {
  for (Size r = 0; r < a.rows; ++r)
    for (Size j = 0; j < a.cols; ++j) {
      float &gate = a.gate_up[r * 2 * a.cols + j], &up = a.gate_up[r * 2 * a.cols + a.cols + j];
      const double g = gate, u = up, s = sigmoid(g), d = a.d_act[r * a.cols + j];
      gate = narrow(d * u * s * (1.0 + g * (1.0 - s)));
      up = narrow(d * g * s);
    }
}

/// Sum of -log softmax(logits)[target] over the counted rows. The gradient, (softmax - one-hot) * scale,
/// replaces the logits.
double ReferenceKernels::cross_entropy(const CrossEntropy& a) {
  double loss = 0.0;
  for (Size r = 0; r < a.rows; ++r) {
    float* row = a.logits + r * a.vocab;
    if (a.targets[r] == -100) {
      if (a.gradient) clear(row, a.vocab);
      continue;
    }
    const Size target = static_cast<Size>(a.targets[r]);
    double top = row[0], total = 0.0;
    for (Size j = 0; j < a.vocab; ++j) top = std::max(top, static_cast<double>(row[j]));
    for (Size j = 0; j < a.vocab; ++j) total += std::exp(row[j] - top);
    loss += top + std::log(total) - row[target];
    if (!a.gradient) continue;
    for (Size j = 0; j < a.vocab; ++j)
      row[j] = narrow((std::exp(row[j] - top) / total - (j == target)) * a.scale);
  }
  return loss;
}

double ReferenceKernels::sum_squares(const SumSquares& a) { return dot(a.count, a.x, a.x); }

/// AdamW with decoupled decay; the bias corrections are in step_size and inv_sqrt_bias2.
void ReferenceKernels::adamw(const AdamW& a) {
  for (Size i = 0; i < a.count; ++i) {
    const double g = static_cast<double>(a.grad[i]) * a.grad_scale;
    const double m = static_cast<double>(a.beta1) * a.m[i] + a.one_minus_beta1 * g;
    const double v = static_cast<double>(a.beta2) * a.v[i] + a.one_minus_beta2 * g * g;
    a.m[i] = narrow(m), a.v[i] = narrow(v);
    a.w[i] = narrow(static_cast<double>(a.decay) * a.w[i] -
                    a.step_size * m / (std::sqrt(v) * a.inv_sqrt_bias2 + a.eps));
  }
}

void ReferenceKernels::sgd(const Sgd& a) {
  for (Size i = 0; i < a.count; ++i)
    a.w[i] =
        narrow(static_cast<double>(a.decay) * a.w[i] - static_cast<double>(a.lr) * a.grad[i] * a.grad_scale);
}

/// Momentum without dampening and without Nesterov, like torch.optim.SGD.
void ReferenceKernels::sgd_momentum(const SgdMomentum& a) {
  for (Size i = 0; i < a.count; ++i) {
    const double m = static_cast<double>(a.momentum) * a.m[i] + static_cast<double>(a.grad[i]) * a.grad_scale;
    a.m[i] = narrow(m);
    a.w[i] = narrow(static_cast<double>(a.decay) * a.w[i] - a.lr * m);
  }
}

/// The direction uses the old momentum: it is interpolated with beta1, the momentum itself with beta2.
void ReferenceKernels::lion(const Lion& a) {
  for (Size i = 0; i < a.count; ++i) {
    const double g = static_cast<double>(a.grad[i]) * a.grad_scale, m = a.m[i],
                 direction = a.beta1 * m + a.one_minus_beta1 * g;
    a.w[i] = narrow(static_cast<double>(a.decay) * a.w[i] -
                    a.lr * static_cast<double>((direction > 0) - (direction < 0)));
    a.m[i] = narrow(a.beta2 * m + a.one_minus_beta2 * g);
  }
}

}  // namespace trainhost::executor
