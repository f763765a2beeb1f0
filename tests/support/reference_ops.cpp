// Every function is a few plain loops, so that a reader can compare it with its formula.
#include "tests/support/reference_ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainhost::reference {

Vec embed(const Vec& table, const Ids& ids, Size h) {
  Vec x(ids.size() * h);
  for (Size r = 0; r < ids.size(); ++r)
    for (Size j = 0; j < h; ++j) x[r * h + j] = table[static_cast<Size>(ids[r]) * h + j];
  return x;
}

void embed_bwd(const Vec& dx, const Ids& ids, Size h, Vec& grad_table) {
  for (Size r = 0; r < ids.size(); ++r)
    for (Size j = 0; j < h; ++j) grad_table[static_cast<Size>(ids[r]) * h + j] += dx[r * h + j];
}

double rstd(const double* x, Size n, double eps) {
  double s = 0;
  for (Size j = 0; j < n; ++j) s += x[j] * x[j];
  return 1.0 / std::sqrt(s / static_cast<double>(n) + eps);
}

Vec rms_norm(const Vec& x, const Vec& w, Size n, double eps) {
  Vec y(x.size());
  for (Size r = 0; r < x.size() / n; ++r) {
    double k = rstd(&x[r * n], n, eps);
    for (Size j = 0; j < n; ++j) y[r * n + j] = x[r * n + j] * k * w[j];
  }
  return y;
}

Vec rms_norm_bwd(const Vec& dy, const Vec& x, const Vec& w, Size n, double eps, Vec& grad_w) {
  Vec dx(x.size());
  for (Size r = 0; r < x.size() / n; ++r) {
    double k = rstd(&x[r * n], n, eps), mean = 0;
    for (Size j = 0; j < n; ++j) mean += dy[r * n + j] * w[j] * x[r * n + j] * k;
    mean /= static_cast<double>(n);
    for (Size j = 0; j < n; ++j) {
      dx[r * n + j] = k * (dy[r * n + j] * w[j] - x[r * n + j] * k * mean);
      grad_w[j] += dy[r * n + j] * x[r * n + j] * k;
    }
  }
  return dx;
}

Vec linear(const Vec& x, const Vec& w, const Vec& bias, const Vec& residual, Size n, Size k) {
  Size m = x.size() / k;
  Vec y(m * n);
  for (Size r = 0; r < m; ++r)
    for (Size j = 0; j < n; ++j) {
      double s = (bias.empty() ? 0 : bias[j]) + (residual.empty() ? 0 : residual[r * n + j]);
      for (Size i = 0; i < k; ++i) s += x[r * k + i] * w[j * k + i];
      y[r * n + j] = s;
    }
  return y;
}

Vec linear_dx(const Vec& dy, const Vec& w, Size n, Size k) {
  Size m = dy.size() / n;
  Vec dx(m * k);
  for (Size r = 0; r < m; ++r)
    for (Size j = 0; j < n; ++j)
      for (Size i = 0; i < k; ++i) dx[r * k + i] += dy[r * n + j] * w[j * k + i];
  return dx;
}

void linear_dw(const Vec& dy, const Vec& x, Size n, Size k, Vec& grad_w, Vec* grad_b) {
  Size m = dy.size() / n;
  for (Size r = 0; r < m; ++r)
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < k; ++i) grad_w[j * k + i] += dy[r * n + j] * x[r * k + i];
      if (grad_b) (*grad_b)[j] += dy[r * n + j];
    }
}

void rope(Vec& qkv, const Heads& s, const std::vector<double>& inv_freq, double sign, Size first_position) {
  for (Size r = 0; r < qkv.size() / s.width(); ++r)
    for (Size h = 0; h < s.heads + s.kv_heads; ++h)
      for (Size i = 0; i < s.d / 2; ++i) {
        double angle = sign * static_cast<double>((first_position + r) % s.seq) * inv_freq[i];
        double &a = qkv[r * s.width() + h * s.d + i], &b = qkv[r * s.width() + h * s.d + i + s.d / 2];
        double u = a * std::cos(angle) - b * std::sin(angle), v = b * std::cos(angle) + a * std::sin(angle);
        a = u, b = v;
      }
}

bool visible(const Heads& s, Size q, Size k) { return k <= q && (s.window == 0 || q - k < s.window); }

Vec probabilities(const Vec& qkv, const Heads& s, Size sequence, Size head, Vec* lse) {
  Size kv = head / (s.heads / s.kv_heads), row0 = sequence * s.seq;
  Vec p(s.seq * s.seq);
  if (lse) lse->assign(s.seq, 0);
  for (Size q = 0; q < s.seq; ++q) {
    double total = 0, top = -std::numeric_limits<double>::infinity();
    for (Size k = 0; k < s.seq; ++k) {
      if (!visible(s, q, k)) continue;
      double dot = 0;
      for (Size i = 0; i < s.d; ++i)
        dot += qkv[(row0 + q) * s.width() + head * s.d + i] *
               qkv[(row0 + k) * s.width() + (s.heads + kv) * s.d + i];
      p[q * s.seq + k] = dot / std::sqrt(static_cast<double>(s.d));
      top = std::max(top, p[q * s.seq + k]);
    }
    for (Size k = 0; k < s.seq; ++k) {
      if (visible(s, q, k)) p[q * s.seq + k] = std::exp(p[q * s.seq + k] - top);
      total += p[q * s.seq + k];
    }
    for (Size k = 0; k < s.seq; ++k) p[q * s.seq + k] /= total;
    if (lse) (*lse)[q] = top + std::log(total);
  }
  return p;
}

Vec attention(const Vec& qkv, const Heads& s) {
  Size sequences = qkv.size() / s.width() / s.seq;
  Vec o(sequences * s.seq * s.heads * s.d);
  for (Size b = 0; b < sequences; ++b)
    for (Size h = 0; h < s.heads; ++h) {
      Vec p = probabilities(qkv, s, b, h);
      Size v = s.heads + s.kv_heads + h / (s.heads / s.kv_heads);
      for (Size q = 0; q < s.seq; ++q)
        for (Size k = 0; k < s.seq; ++k)
          for (Size i = 0; i < s.d; ++i)
            o[((b * s.seq + q) * s.heads + h) * s.d + i] +=
                p[q * s.seq + k] * qkv[(b * s.seq + k) * s.width() + v * s.d + i];
    }
  return o;
}

Vec attention_bwd(const Vec& d_o, const Vec& qkv, const Heads& s) {
  Size sequences = qkv.size() / s.width() / s.seq, w = s.width();
  double scale = 1.0 / std::sqrt(static_cast<double>(s.d));
  Vec dqkv(qkv.size());
  for (Size b = 0; b < sequences; ++b)
    for (Size h = 0; h < s.heads; ++h) {
      Vec p = probabilities(qkv, s, b, h), dp(s.seq * s.seq);
      Size kh = s.heads + h / (s.heads / s.kv_heads), vh = kh + s.kv_heads;
      for (Size q = 0; q < s.seq; ++q) {
        const double* g = &d_o[((b * s.seq + q) * s.heads + h) * s.d];
        double mean = 0;
        for (Size k = 0; k < s.seq; ++k) {
          for (Size i = 0; i < s.d; ++i) {
            dp[q * s.seq + k] += g[i] * qkv[(b * s.seq + k) * w + vh * s.d + i];
            dqkv[(b * s.seq + k) * w + vh * s.d + i] += p[q * s.seq + k] * g[i];
          }
          mean += p[q * s.seq + k] * dp[q * s.seq + k];
        }
        for (Size k = 0; k < s.seq; ++k) {
          double ds = p[q * s.seq + k] * (dp[q * s.seq + k] - mean) * scale;
          for (Size i = 0; i < s.d; ++i) {
            dqkv[(b * s.seq + q) * w + h * s.d + i] += ds * qkv[(b * s.seq + k) * w + kh * s.d + i];
            dqkv[(b * s.seq + k) * w + kh * s.d + i] += ds * qkv[(b * s.seq + q) * w + h * s.d + i];
          }
        }
      }
    }
  return dqkv;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

Vec swiglu(const Vec& gu, Size n) {
  Vec a(gu.size() / 2);
  for (Size r = 0; r < a.size() / n; ++r)
    for (Size j = 0; j < n; ++j) {
      double g = gu[r * 2 * n + j];
      a[r * n + j] = g * sigmoid(g) * gu[r * 2 * n + n + j];
    }
  return a;
}

Vec swiglu_bwd(const Vec& da, const Vec& gu, Size n) {
  Vec d(gu.size());
  for (Size r = 0; r < da.size() / n; ++r)
    for (Size j = 0; j < n; ++j) {
      double g = gu[r * 2 * n + j], u = gu[r * 2 * n + n + j], s = sigmoid(g);
      d[r * 2 * n + j] = da[r * n + j] * u * s * (1 + g * (1 - s));
      d[r * 2 * n + n + j] = da[r * n + j] * g * s;
    }
  return d;
}

double cross_entropy(const Vec& logits, const Ids& targets, Size v, double scale, Vec* dlogits) {
  double loss = 0;
  if (dlogits) dlogits->assign(logits.size(), 0);
  for (Size r = 0; r < targets.size(); ++r) {
    if (targets[r] == -100) continue;
    double top = logits[r * v], total = 0;
    for (Size j = 0; j < v; ++j) top = std::max(top, logits[r * v + j]);
    for (Size j = 0; j < v; ++j) total += std::exp(logits[r * v + j] - top);
    loss += top + std::log(total) - logits[r * v + static_cast<Size>(targets[r])];
    if (!dlogits) continue;
    for (Size j = 0; j < v; ++j) {
      double p = std::exp(logits[r * v + j] - top) / total;
      (*dlogits)[r * v + j] = (p - (static_cast<Size>(targets[r]) == j ? 1 : 0)) * scale;
    }
  }
  return loss;
}

void AdamW::step(double t, const Vec& g, bool decay, Vec& w, Vec& m, Vec& v) const {
  for (Size i = 0; i < w.size(); ++i) {
    m[i] = beta1 * m[i] + (1 - beta1) * g[i];
    v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    if (decay) w[i] *= 1 - lr * weight_decay;
    w[i] -= lr * (m[i] / (1 - std::pow(beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + eps);
  }
}

void Lion::step(const Vec& g, bool decay, Vec& w, Vec& m) const {
  for (Size i = 0; i < w.size(); ++i) {
    const double direction = beta1 * m[i] + (1 - beta1) * g[i];
    if (decay) w[i] *= 1 - lr * weight_decay;
    w[i] -= lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    m[i] = beta2 * m[i] + (1 - beta2) * g[i];
  }
}

void Sgd::step(const Vec& g, bool decay, Vec& w, Vec* m) const {
  for (Size i = 0; i < w.size(); ++i) {
    double d = g[i];
    if (m) d = (*m)[i] = momentum * (*m)[i] + g[i];
    if (decay) w[i] *= 1 - lr * weight_decay;
    w[i] -= lr * d;
  }
}

}  // namespace trainhost::reference
