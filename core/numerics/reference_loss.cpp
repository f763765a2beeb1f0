// See reference_loss.hpp. Sources: RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021, half-split pairs
// as in Hugging Face checkpoints), SwiGLU (Shazeer 2020), grouped-query attention (Ainslie et al. 2023), q/k
// norm (Qwen3), rope scaling (LLaMA 3.1). The frequencies are computed here and not by core/model, which
// trainers use.
#include "core/numerics/reference_loss.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainhost::numerics {
namespace {

using Values = std::vector<double>;
using Size = std::size_t;

/// Divides `n` values by their root mean square and multiplies them by `weight`.
void normalise(double* x, Size n, const Values& weight, double eps) {
  double squares = 0;
  for (Size i = 0; i < n; ++i) squares += x[i] * x[i];
  const double rms = std::sqrt(squares / static_cast<double>(n) + eps);
  for (Size i = 0; i < n; ++i) x[i] *= weight[i] / rms;
}

/// Angle per position of each pair (i, i + D/2).
Values angles_per_position(const ModelSpec& m) {
  Values angle(m.head_dim / 2);
  for (Size i = 0; i < angle.size(); ++i) {
    double& a = angle[i];
    a = std::pow(m.rope_theta, -2.0 * static_cast<double>(i) / m.head_dim);
    if (m.rope.kind == RopeKind::kLinear) a /= m.rope.factor;
    if (m.rope.kind != RopeKind::kLlama3) continue;
    // Turns within the original context: few are stretched by the factor, many are kept, and between the two
    // limits the angles are blended.
    const double turns = static_cast<double>(m.rope.original_max_positions) * a / (2 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - m.rope.low_freq_factor) / (m.rope.high_freq_factor - m.rope.low_freq_factor), 0.0, 1.0);
    a *= kept + (1 - kept) / m.rope.factor;
  }
  return angle;
}

/// The forward pass of one sequence. Rows are tokens.
class ForwardPass {
 public:
  ForwardPass(const ModelSpec& m, const Tensors& w, std::span<const std::int32_t> ids)
      : m_(m), w_(w), rows_(ids.size()), angle_(angles_per_position(m)) {
    const Values& table = w.at("model.embed_tokens.weight");
    for (const std::int32_t id : ids)
      x_.insert(x_.end(), table.begin() + std::int64_t{id} * m.hidden,
                table.begin() + (std::int64_t{id} + 1) * m.hidden);
  }

  Values logits() {
    for (std::uint32_t l = 0; l < m_.layers; ++l) {
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      add(attention(normed(x_, layer + "input_layernorm.weight"), layer + "self_attn.", m_.window(l)));
      add(mlp(normed(x_, layer + "post_attention_layernorm.weight"), layer + "mlp."));
    }
    return project(normed(x_, "model.norm.weight"), m_.tied ? "model.embed_tokens" : "lm_head");
  }

 private:
  void add(const Values& y) {
    for (Size i = 0; i < x_.size(); ++i) x_[i] += y[i];
  }

  Values normed(Values x, const std::string& weight) const {
    for (Size r = 0; r < rows_; ++r) normalise(&x[r * m_.hidden], m_.hidden, w_.at(weight), m_.norm_eps);
    return x;
  }

  /// x W^T, plus the bias if the model has that tensor.
  Values project(const Values& x, const std::string& name) const {
    const Values& w = w_.at(name + ".weight");
    const auto bias = w_.find(name + ".bias");
    const Size inputs = x.size() / rows_, outputs = w.size() / inputs;
    Values y(rows_ * outputs);
    for (Size r = 0; r < rows_; ++r)
      for (Size j = 0; j < outputs; ++j) {
        double sum = bias == w_.end() ? 0 : bias->second[j];
        for (Size i = 0; i < inputs; ++i) sum += x[r * inputs + i] * w[j * inputs + i];
        y[r * outputs + j] = sum;
      }
    return y;
  }

  /// q or k: each head is normed if the model has q/k norms, then rotated by the position of its row.
  Values rotated(Values x, const std::string& norm) const {
    const Size d = m_.head_dim, half = d / 2, heads = x.size() / rows_ / d;
    for (Size r = 0; r < rows_; ++r)
      for (Size h = 0; h < heads; ++h) {
        double* p = &x[(r * heads + h) * d];
        if (m_.qk_norm) normalise(p, d, w_.at(norm), m_.norm_eps);
        for (Size i = 0; i < half; ++i) {
          const double turn = static_cast<double>(r) * angle_[i], u = p[i], v = p[i + half];
          p[i] = u * std::cos(turn) - v * std::sin(turn),
          p[i + half] = v * std::cos(turn) + u * std::sin(turn);
        }
      }
    return x;
  }

  /// Causal softmax attention; a query sees `window` keys, itself included (0: all before it).
  Values attention(const Values& x, const std::string& name, Size window) const {
    const Size d = m_.head_dim, heads = m_.heads, kv_heads = m_.kv_heads;
    const Values q = rotated(project(x, name + "q_proj"), name + "q_norm.weight"),
                 k = rotated(project(x, name + "k_proj"), name + "k_norm.weight"),
                 v = project(x, name + "v_proj");
    Values out(rows_ * heads * d), p(rows_);
    for (Size r = 0; r < rows_; ++r)
      for (Size h = 0; h < heads; ++h) {
        const Size shared = h / (heads / kv_heads), first = window && r + 1 > window ? r + 1 - window : 0;
        double sum = 0;
        for (Size t = first; t <= r; ++t) {
          double score = 0;
          for (Size i = 0; i < d; ++i)
            score += q[(r * heads + h) * d + i] * k[(t * kv_heads + shared) * d + i];
          // Without subtraction of the maximum: scores of these models are far below the limit of a double.
          sum += p[t] = std::exp(score / std::sqrt(static_cast<double>(d)));
        }
        for (Size t = first; t <= r; ++t)
          for (Size i = 0; i < d; ++i)
            out[(r * heads + h) * d + i] += p[t] / sum * v[(t * kv_heads + shared) * d + i];
      }
    return project(out, name + "o_proj");
  }

  Values mlp(const Values& x, const std::string& name) const {
    Values gate = project(x, name + "gate_proj");
    const Values up = project(x, name + "up_proj");
    for (Size i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return project(gate, name + "down_proj");
  }

  const ModelSpec& m_;
  const Tensors& w_;
  const Size rows_;
  const Values angle_;
  Values x_;  // [rows, hidden]: the residual stream
};

}  // namespace

std::vector<double> logits(const ModelSpec& m, const Tensors& w, std::span<const std::int32_t> ids) {
  return ForwardPass(m, w, ids).logits();
}

double mean_loss(const ModelSpec& m, const Tensors& w, const Batch& batch) {
  double sum = 0, counted = 0;
  const std::span<const std::int32_t> tokens = batch.tokens;
  for (Size first = 0; first < tokens.size(); first += batch.seq) {
    const Values all = logits(m, w, tokens.subspan(first, batch.seq));
    for (Size r = 0; r < batch.seq; ++r) {
      const std::int32_t target = batch.targets[first + r];
      if (target == -100) continue;
      const double* row = &all[r * m.vocab];
      double total = 0;
      for (Size j = 0; j < m.vocab; ++j) total += std::exp(row[j]);
      sum += std::log(total) - row[target], ++counted;
    }
  }
  return sum / counted;
}

}  // namespace trainhost::numerics
