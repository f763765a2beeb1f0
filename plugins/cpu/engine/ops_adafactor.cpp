// Adafactor as torch.optim.Adafactor, tensor by tensor: q, k and v have a second moment each although they
// share a buffer. A tensor is divided into `slots` parts of its rows, whose sums are added in order, so the
// bits do not depend on the number of threads. Passes over a matrix: row and column means of g^2; sum of
// squares of the change, which is computed again in the last pass instead of being stored.
#include <algorithm>
#include <cmath>

#include "core/step/operands.hpp"
#include "core/step/state_layout.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

// torch's defaults: eps1 is that of f32; beta2_decay = -0.8; d = 1.
constexpr double kEps1 = 1.1920928955078125e-07, kBeta2Decay = -0.8, kLargestRms = 1.0;

/// One tensor as a matrix [rows, cols]. A vector is one row whose "column means" are its second moment.
struct FactoredTensor {
  const float* g;
  UpdatedWeight w;
  float *row_means, *col_means;
  std::uint64_t rows, cols;
  bool factored;
};

/// A pass over all rows, or over the elements of a vector: f(slot, row, range of columns).
template <class F>
void over_slots(OpContext& ctx, const FactoredTensor& t, std::uint32_t slots, F&& f) {
  ctx.pool.run(slots, [&](std::uint32_t s, std::uint32_t) {
    if (!t.factored) return f(s, 0, part(t.cols, s, slots));
    const Range rows = part(t.rows, s, slots);
    for (std::uint64_t r = rows.begin; r < rows.end; ++r) f(s, r, Range{0, t.cols});
  });
}

/// moment = (1 - weight) moment + weight mean, as torch.lerp.
void average_into(float& moment, double mean, double weight) {
  moment = static_cast<float>(moment + weight * (mean - moment));
}

class AdafactorUpdate {
 public:
  AdafactorUpdate(OpContext& ctx, const step::Op& op, const FactoredTensor& t)
      : ctx_(ctx),
        t_(t),
        slots_(static_cast<std::uint32_t>(ctx.buffer(op[adafactor::kSums]).rows)),
        width_(ctx.buffer(op[adafactor::kSums]).cols),
        sums_(ctx.f64(op[adafactor::kSums])),
        clip_(ctx.f64(op[adafactor::kScalars])[step::kClipFactor]),
        decays_(op.flags & step::kDecay) {}

  void run() {
    const double step_index = static_cast<double>(ctx_.step.step_index) + 1.0, lr = ctx_.step.lr;
    const double weight = std::pow(step_index, kBeta2Decay);
    std::fill_n(sums_, slots_ * width_, 0.0);
    over_slots(ctx_, t_, slots_,
               [&](std::uint32_t s, std::uint64_t r, Range c) { collect(s, r, c, weight); });
    const double rms_of_weights = std::sqrt(total(0) / elements());
    if (t_.factored) average_columns(weight);
    const float per_row_mean = t_.factored ? static_cast<float>(1.0 / std::max(mean_of_rows(), kEps1)) : 1.0f;
    AdafactorConstants c{static_cast<float>(clip_), static_cast<float>(kEps1 * kEps1), 1.0f, 0.0f};
    const auto factor = [&](std::uint64_t r) { return t_.factored ? t_.row_means[r] * per_row_mean : 1.0f; };
    over_slots(ctx_, t_, slots_, [&](std::uint32_t s, std::uint64_t r, Range x) {
      of(s, 1) += ctx_.kernels.adafactor_squares(x.size(), row(t_.g, r) + x.begin, t_.col_means + x.begin,
                                                 factor(r), c);
    });
    const double rms_of_change = std::sqrt(total(1) / elements());
    const double relative = std::min(lr, 1.0 / std::sqrt(step_index));
    c.decay = decays_ ? static_cast<float>(1.0 - lr * ctx_.program.run.weight_decay) : 1.0f;
    c.step = static_cast<float>(std::max(ctx_.program.run.eps, rms_of_weights) * relative /
                                std::max(1.0, rms_of_change / kLargestRms));
    over_slots(ctx_, t_, slots_, [&](std::uint32_t, std::uint64_t r, Range x) {
      ctx_.kernels.adafactor(x.size(), row(t_.g, r) + x.begin, t_.col_means + x.begin, factor(r),
                             row(t_.w.values, r) + x.begin, c);
      t_.w.store(ctx_.kernels, r * t_.cols + x.begin, x.size());
    });
  }

 private:
  template <class T>
  T* row(T* matrix, std::uint64_t r) const {
    return matrix + r * t_.cols;
  }
  double elements() const { return static_cast<double>(t_.rows) * static_cast<double>(t_.cols); }
  /// Sums of a slot: [0] squares of weights, [1] of changes, then one per column.
  double& of(std::uint32_t slot, std::uint64_t i) { return sums_[slot * width_ + i]; }
  double total(std::uint64_t i) {
    double sum = 0;
    for (std::uint32_t s = 0; s < slots_; ++s) sum += of(s, i);
    return sum;
  }

  void collect(std::uint32_t s, std::uint64_t r, Range c, double weight) {
    const float* g = row(t_.g, r) + c.begin;
    of(s, 0) += ctx_.kernels.sum_squares(c.size(), row(t_.w.values, r) + c.begin);
    if (!t_.factored) {
      for (std::uint64_t i = 0; i < c.size(); ++i) {
        const double x = g[i] * clip_;
        average_into(t_.col_means[c.begin + i], x * x, weight);
      }
      return;
    }
    const double mean = ctx_.kernels.sum_squares(c.size(), g) * clip_ * clip_ / static_cast<double>(t_.cols);
    average_into(t_.row_means[r], mean, weight);
    ctx_.kernels.add_squares(c.size(), g, &of(s, 2));
  }
  void average_columns(double weight) {
    for (std::uint64_t c = 0; c < t_.cols; ++c)
      average_into(t_.col_means[c], total(2 + c) * clip_ * clip_ / static_cast<double>(t_.rows), weight);
  }
  double mean_of_rows() const {
    double sum = 0;
    for (std::uint64_t r = 0; r < t_.rows; ++r) sum += t_.row_means[r];
    return sum / static_cast<double>(t_.rows);
  }

  OpContext& ctx_;
  const FactoredTensor& t_;
  const std::uint32_t slots_;
  const std::uint64_t width_;
  double* const sums_;
  const double clip_;
  const bool decays_;
};

}  // namespace

void run_adafactor(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[adafactor::kGrad]);
  const bool factored = op[adafactor::kColumns] != step::kNoBuffer;
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MatrixSlice s = step::matrix_slice(ctx.program, param, i);
    const std::uint64_t first = s.first_row * s.cols;
    FactoredTensor t{ctx.f32(op[adafactor::kGrad]) + first,
                     updated_weight(ctx, op, first),
                     ctx.f32(op[adafactor::kRows]) + s.first_row,
                     nullptr,
                     s.rows,
                     s.cols,
                     factored};
    if (factored)
      t.col_means = ctx.f32(op[adafactor::kColumns]) + i * s.cols;
    else
      t.col_means = t.row_means, t.row_means = nullptr, t.cols = s.rows, t.rows = 1;
    AdafactorUpdate(ctx, op, t).run();
  }
}

}  // namespace trainhost::cpu
