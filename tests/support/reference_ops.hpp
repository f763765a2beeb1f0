// The simplest correct version of every operation, in double, with plain loops; kernels and trainers are
// compared with it. Nothing here is fast, blocked or in place. Shapes as in core/step/program.hpp, row-major.
// For tests only.
#pragma once
#include <cstdint>
#include <vector>

namespace trainhost::reference {

using Vec = std::vector<double>;
using Ids = std::vector<std::int32_t>;
using Size = std::size_t;

// ---- embedding
Vec embed(const Vec& table, const Ids& ids, Size h);
void embed_bwd(const Vec& dx, const Ids& ids, Size h, Vec& grad_table);

// ---- RMSNorm over rows of n
double rstd(const double* x, Size n, double eps);
Vec rms_norm(const Vec& x, const Vec& w, Size n, double eps);
Vec rms_norm_bwd(const Vec& dy, const Vec& x, const Vec& w, Size n, double eps, Vec& grad_w);

// ---- linear: y[M,n] = x[M,k] w[n,k]^T (+ bias) (+ residual)
Vec linear(const Vec& x, const Vec& w, const Vec& bias, const Vec& residual, Size n, Size k);
Vec linear_dx(const Vec& dy, const Vec& w, Size n, Size k);
void linear_dw(const Vec& dy, const Vec& x, Size n, Size k, Vec& grad_w, Vec* grad_b);

// ---- heads: rows of  q heads | k heads | v heads
struct Heads {
  Size seq, heads, kv_heads, d;
  Size window = 0;  // keys a query sees, itself included; 0 = all before it
  Size width() const { return (heads + 2 * kv_heads) * d; }
};

/// Pair (i, i + D/2) of every q and k head turns by sign * position * inv_freq[i].
void rope(Vec& qkv, const Heads& s, const std::vector<double>& inv_freq, double sign,
          Size first_position = 0);
bool visible(const Heads& s, Size q, Size k);
/// Probabilities [seq, seq] of one head of one sequence.
Vec probabilities(const Vec& qkv, const Heads& s, Size sequence, Size head, Vec* lse = nullptr);
Vec attention(const Vec& qkv, const Heads& s);
Vec attention_bwd(const Vec& d_o, const Vec& qkv, const Heads& s);

// ---- SwiGLU: gu rows are  gate | up
double sigmoid(double x);
Vec swiglu(const Vec& gu, Size n);
Vec swiglu_bwd(const Vec& da, const Vec& gu, Size n);

// ---- cross-entropy
/// Sum of -log softmax(row)[target] over rows whose target is not -100; dlogits = (softmax - onehot) * scale.
double cross_entropy(const Vec& logits, const Ids& targets, Size v, double scale, Vec* dlogits);

// ---- optimizers (g is already clipped)
struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  /// t counts from 1.
  void step(double t, const Vec& g, bool decay, Vec& w, Vec& m, Vec& v) const;
};
struct Lion {
  double lr, beta1, beta2, weight_decay;
  void step(const Vec& g, bool decay, Vec& w, Vec& m) const;
};
struct Sgd {
  double lr, momentum, weight_decay;
  void step(const Vec& g, bool decay, Vec& w, Vec* m) const;
};

}  // namespace trainhost::reference
