// Adafactor as torch.optim.Adafactor, tensor by tensor: q, k and v have a second moment each although they
// share a buffer. A tensor is divided into `slots` parts of its rows, whose sums are added in order, so the
// bits do not depend on the number of threads. Passes over a matrix: row and column means of g^2; sum of
// squares of the change, which is computed again in the last pass instead of being stored. If TP ranks divide
// a tensor, the passes are operations of their own, and the ranks add up the sums between them.
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

/// One tensor as a matrix [rows, cols], or a TP rank's part of one. A vector is one row whose "column means"
/// are its second moment.
struct FactoredTensor {
  const float* g;
  UpdatedWeight w;
  float *row_means, *col_means;
  std::uint64_t rows, cols;
  bool factored;
  std::uint64_t all_rows, all_cols;  // of the whole tensor
  bool by_columns;                   // TP ranks divide columns
};

/// What the ranks add up of a tensor: step::operand::adafactor_sums.
struct SumsOfRanks {
  float *squares_of_weights, *row_means, *squares;
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
  AdafactorUpdate(OpContext& ctx, step::BufferId sums, step::BufferId scalars, bool decays,
                  const FactoredTensor& t)
      : ctx_(ctx),
        t_(t),
        slots_(static_cast<std::uint32_t>(ctx.buffer(sums).rows)),
        width_(ctx.buffer(sums).cols),
        sums_(ctx.f64(sums)),
        clip_(ctx.f64(scalars)[step::kClipFactor]),
        decays_(decays) {}

  /// All passes over a tensor of which this rank has all elements.
  void run() {
    const double of_weights = collect(nullptr);
    if (t_.factored) average_columns();
    row_factor_ = t_.factored ? factor_of_mean(sum_of_rows()) : 1.0f;
    apply(of_weights, squares_of_change());
  }

  /// The means of which this rank has all elements, and its part of the sums of the others.
  void collect_part(const SumsOfRanks& out) {
    *out.squares_of_weights = static_cast<float>(collect(t_.by_columns ? out.squares : nullptr));
    *out.row_means = 0.0f;
    if (!t_.factored) return;
    if (t_.by_columns) return average_columns();
    *out.row_means = static_cast<float>(sum_of_rows());
    for (std::uint64_t c = 0; c < t_.cols; ++c)
      out.squares[c] = static_cast<float>(total(2 + c) * clip_ * clip_);
  }

  /// The other means from the sums of all ranks. Returns this rank's part of the squares of the change.
  double change_part(const SumsOfRanks& in) {
    if (t_.factored && t_.by_columns)
      for (std::uint64_t r = 0; r < t_.rows; ++r)
        average_into(t_.row_means[r], in.squares[r] / static_cast<double>(t_.all_cols), weight());
    else if (t_.factored)
      for (std::uint64_t c = 0; c < t_.cols; ++c)
        average_into(t_.col_means[c], in.squares[c] / static_cast<double>(t_.all_rows), weight());
    set_row_factor(in);
    std::fill_n(sums_, slots_ * width_, 0.0);
    return squares_of_change();
  }

  void apply_part(const SumsOfRanks& in, double squares_of_change_of_all) {
    set_row_factor(in);
    apply(*in.squares_of_weights, squares_of_change_of_all);
  }

 private:
  template <class T>
  T* row(T* matrix, std::uint64_t r) const {
    return matrix + r * t_.cols;
  }
  double elements() const { return static_cast<double>(t_.all_rows) * static_cast<double>(t_.all_cols); }
  double step_index() const { return static_cast<double>(ctx_.step.step_index) + 1.0; }
  double weight() const { return std::pow(step_index(), kBeta2Decay); }
  AdafactorConstants constants() const {
    return {static_cast<float>(clip_), static_cast<float>(kEps1 * kEps1), 1.0f, 0.0f};
  }
  /// Sums of a slot: [0] squares of weights, [1] of changes, then one per column.
  double& of(std::uint32_t slot, std::uint64_t i) { return sums_[slot * width_ + i]; }
  double total(std::uint64_t i) {
    double sum = 0;
    for (std::uint32_t s = 0; s < slots_; ++s) sum += of(s, i);
    return sum;
  }

  /// Row means, or to `squares_of_rows` this rank's part of their sums; sums of columns in the slots. Returns
  /// the squares of the weights.
  double collect(float* squares_of_rows) {
    std::fill_n(sums_, slots_ * width_, 0.0);
    const double of_new = weight();
    over_slots(ctx_, t_, slots_, [&](std::uint32_t s, std::uint64_t r, Range c) {
      const float* g = row(t_.g, r) + c.begin;
      of(s, 0) += ctx_.kernels.sum_squares(c.size(), row(t_.w.values, r) + c.begin);
      if (!t_.factored) {
        for (std::uint64_t i = 0; i < c.size(); ++i) {
          const double x = g[i] * clip_;
          average_into(t_.col_means[c.begin + i], x * x, of_new);
        }
        return;
      }
      const double squares = ctx_.kernels.sum_squares(c.size(), g) * clip_ * clip_;
      if (squares_of_rows)
        squares_of_rows[r] = static_cast<float>(squares);
      else
        average_into(t_.row_means[r], squares / static_cast<double>(t_.cols), of_new);
      ctx_.kernels.add_squares(c.size(), g, &of(s, 2));
    });
    return total(0);
  }
  void average_columns() {
    for (std::uint64_t c = 0; c < t_.cols; ++c)
      average_into(t_.col_means[c], total(2 + c) * clip_ * clip_ / static_cast<double>(t_.rows), weight());
  }
  double sum_of_rows() const {
    double sum = 0;
    for (std::uint64_t r = 0; r < t_.rows; ++r) sum += t_.row_means[r];
    return sum;
  }
  float factor_of_mean(double sum_of_row_means) const {
    return static_cast<float>(1.0 / std::max(sum_of_row_means / static_cast<double>(t_.all_rows), kEps1));
  }
  void set_row_factor(const SumsOfRanks& in) {
    row_factor_ = !t_.factored ? 1.0f : factor_of_mean(t_.by_columns ? sum_of_rows() : double{*in.row_means});
  }
  float factor(std::uint64_t r) const { return t_.factored ? t_.row_means[r] * row_factor_ : 1.0f; }

  double squares_of_change() {
    const AdafactorConstants c = constants();
    over_slots(ctx_, t_, slots_, [&](std::uint32_t s, std::uint64_t r, Range x) {
      of(s, 1) += ctx_.kernels.adafactor_squares(x.size(), row(t_.g, r) + x.begin, t_.col_means + x.begin,
                                                 factor(r), c);
    });
    return total(1);
  }

  void apply(double squares_of_weights, double squares_of_change_of_all) {
    const double rms_of_weights = std::sqrt(squares_of_weights / elements()),
                 rms_of_change = std::sqrt(squares_of_change_of_all / elements()), lr = ctx_.step.lr;
    const double relative = std::min(lr, 1.0 / std::sqrt(step_index()));
    AdafactorConstants c = constants();
    c.decay = decays_ ? static_cast<float>(1.0 - lr * ctx_.program.run.weight_decay) : 1.0f;
    c.step = static_cast<float>(std::max(ctx_.program.run.eps, rms_of_weights) * relative /
                                std::max(1.0, rms_of_change / kLargestRms));
    over_slots(ctx_, t_, slots_, [&](std::uint32_t, std::uint64_t r, Range x) {
      ctx_.kernels.adafactor(x.size(), row(t_.g, r) + x.begin, t_.col_means + x.begin, factor(r),
                             row(t_.w.values, r) + x.begin, c);
      t_.w.store(ctx_.kernels, r * t_.cols + x.begin, x.size());
    });
  }

  OpContext& ctx_;
  const FactoredTensor& t_;
  const std::uint32_t slots_;
  const std::uint64_t width_;
  double* const sums_;
  const double clip_;
  const bool decays_;
  float row_factor_ = 1.0f;  // 1 / mean of the row means
};

/// Tensor i of a parameter. row_means: of the parameter, or the second moment of a vector; col_means: null
/// for a vector.
FactoredTensor factored_tensor(const step::FactoredSlice& s, std::size_t i, const float* grad,
                               UpdatedWeight w, float* row_means, float* col_means) {
  const std::uint64_t rows = s.part.rows, cols = s.part.cols, first = s.part.first_row;
  if (!col_means)
    return {grad + first, w, nullptr, row_means + first, 1, rows, false, 1, s.rows, s.by_columns};
  return {grad + first * cols, w, row_means + first, col_means + i * cols, rows, cols, true, s.rows, s.cols,
          s.by_columns};
}

/// The sums of tensor i in a buffer of those of all tensors.
SumsOfRanks sums_of_ranks(OpContext& ctx, step::BufferId b, std::size_t i) {
  float* of_tensor = ctx.f32(b) + i * ctx.buffer(b).cols;
  return {of_tensor, of_tensor + 1, of_tensor + 2};
}

}  // namespace

void run_adafactor(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[adafactor::kGrad]);
  const step::BufferId of_ranks = op[adafactor::kOfRanks];
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::FactoredSlice s = step::factored_slice(ctx.program, param, i);
    const FactoredTensor t = factored_tensor(s, i, ctx.f32(op[adafactor::kGrad]),
                                             updated_weight(ctx, op, s.part.first_row * s.part.cols),
                                             ctx.f32(op[adafactor::kRows]), ctx.f32(op[adafactor::kColumns]));
    AdafactorUpdate update(ctx, op[adafactor::kSums], op[adafactor::kScalars], op.flags & step::kDecay, t);
    if (of_ranks == step::kNoBuffer)
      update.run();
    else
      update.apply_part(sums_of_ranks(ctx, of_ranks, i), ctx.f32(op[adafactor::kChange])[i]);
  }
}

void run_adafactor_sums(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[adafactor_sums::kGrad]);
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::FactoredSlice s = step::factored_slice(ctx.program, param, i);
    const step::BufferId master = op[adafactor_sums::kMaster];
    float* weights = ctx.f32(master == step::kNoBuffer ? op[adafactor_sums::kWeight] : master);
    const UpdatedWeight w{weights + s.part.first_row * s.part.cols, nullptr};
    const FactoredTensor t =
        factored_tensor(s, i, ctx.f32(op[adafactor_sums::kGrad]), w, ctx.f32(param.m), ctx.f32(param.v));
    AdafactorUpdate(ctx, op[adafactor_sums::kSums], op[adafactor_sums::kScalars], false, t)
        .collect_part(sums_of_ranks(ctx, op[adafactor_sums::kX], i));
  }
}

void run_adafactor_change(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[adafactor_change::kGrad]);
  const step::BufferId y = op.out[op.outs - 1];
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::FactoredSlice s = step::factored_slice(ctx.program, param, i);
    const FactoredTensor t =
        factored_tensor(s, i, ctx.f32(op[adafactor_change::kGrad]), {}, ctx.f32(param.m), ctx.f32(param.v));
    const double squares =
        AdafactorUpdate(ctx, op[adafactor_change::kSums], op[adafactor_change::kScalars], false, t)
            .change_part(sums_of_ranks(ctx, op[adafactor_change::kOfRanks], i));
    ctx.f32(y)[i] = static_cast<float>(squares);
  }
}

}  // namespace trainhost::cpu
