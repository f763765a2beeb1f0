// Muon as torch.optim.Muon, tensor by tensor: momentum, five Newton-Schulz steps in f32, update with the
// learning rate adjusted to the RMS of AdamW's updates. The three products of a step are divided into tiles,
// one OpenBLAS call each; tiles depend on the shape only. For a matrix with more rows than columns the square
// matrices are those of its transpose, so that nothing is transposed.
#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "core/step/operands.hpp"
#include "core/step/state_layout.hpp"
#include "plugins/cpu/engine/op_context.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

// The polynomial a x + b x^3 + c x^5 of Keller Jordan's Muon, its steps, and the smallest norm of its input.
constexpr float kQuinticA = 3.4445f, kQuinticB = -4.7750f, kQuinticC = 2.0315f;
constexpr int kNewtonSchulzSteps = 5;
constexpr double kSmallestMuonNorm = 1e-7;

blasint blas_int(std::uint64_t v) { return static_cast<blasint>(v); }

struct MuonOperand {
  const float* data;
  std::uint64_t ld;
  bool transposed;
  /// Address of row (or, if transposed, column) r and column c of the operand as it is multiplied.
  const float* at(std::uint64_t r, std::uint64_t c) const {
    return transposed ? data + c * ld + r : data + r * ld + c;
  }
  CBLAS_TRANSPOSE flag() const { return transposed ? CblasTrans : CblasNoTrans; }
};

/// out[m,n] = alpha left[m,k] right[k,n] + beta base[m,n]; base is not read with beta = 0.
void muon_product(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, float alpha,
                  const MuonOperand& left, const MuonOperand& right, float beta, const float* base,
                  float* out) {
  const Grid grid = large_grid(m, n);
  ctx.pool.run(grid.tiles(), [&](std::uint32_t i, std::uint32_t) {
    const Range rows = grid.row_range(i, m), cols = grid.col_range(i, n);
    float* tile = out + rows.begin * n + cols.begin;
    if (beta != 0.0f)
      for (std::uint64_t r = 0; r < rows.size(); ++r)
        std::copy_n(base + (rows.begin + r) * n + cols.begin, cols.size(), tile + r * n);
    cblas_sgemm(CblasRowMajor, left.flag(), right.flag(), blas_int(rows.size()), blas_int(cols.size()),
                blas_int(k), alpha, left.at(rows.begin, 0), blas_int(left.ld), right.at(0, cols.begin),
                blas_int(right.ld), beta, tile, blas_int(n));
  });
}

/// x[rows, cols] becomes orthogonal, up to singular values between about 0.7 and 1.2. Returns the buffer with
/// the result, x or other.
float* orthogonalise(OpContext& ctx, std::uint64_t rows, std::uint64_t cols, float* x, float* other,
                     float* gram, float* polynomial) {
  const bool wide = rows <= cols;
  const std::uint64_t n = std::min(rows, cols), k = std::max(rows, cols);
  for (int i = 0; i < kNewtonSchulzSteps; ++i) {
    // Gram matrix x x^T of a wide matrix, x^T x of a tall one.
    muon_product(ctx, n, n, k, 1.0f, {x, cols, !wide}, {x, cols, wide}, 0.0f, nullptr, gram);
    muon_product(ctx, n, n, n, kQuinticC, {gram, n, false}, {gram, n, false}, kQuinticB, gram, polynomial);
    if (wide)
      muon_product(ctx, rows, cols, n, 1.0f, {polynomial, n, false}, {x, cols, false}, kQuinticA, x, other);
    else
      muon_product(ctx, rows, cols, n, 1.0f, {x, cols, false}, {polynomial, n, false}, kQuinticA, x, other);
    std::swap(x, other);
  }
  return x;
}

/// Memory of the Newton-Schulz steps of a tensor [rows, cols].
struct MuonWork {
  float *x, *other, *gram, *polynomial;
  MuonWork(float* work, std::uint64_t rows, std::uint64_t cols)
      : x(work), other(x + rows * cols), gram(other + rows * cols) {
    polynomial = gram + std::min(rows, cols) * std::min(rows, cols);
  }
};

/// Calls f(range of elements) of n, in kMuonTasks parts on the threads.
template <class F>
void in_parts(OpContext& ctx, std::uint64_t n, F&& f) {
  ctx.pool.run(kMuonTasks, [&](std::uint32_t task, std::uint32_t) { f(part(n, task, kMuonTasks), task); });
}

/// m and the direction x of n elements; ctx.partials gets sums of the squares of x.
void momentum(OpContext& ctx, std::uint64_t n, const float* g, float* m, float* x, float clip) {
  const RunSpec& run = ctx.program.run;
  const float beta = static_cast<float>(run.beta1), rest = static_cast<float>(1.0 - run.beta1);
  in_parts(ctx, n, [&](Range r, std::uint32_t task) {
    ctx.partials[task] =
        ctx.kernels.muon_momentum(r.size(), g + r.begin, m + r.begin, x + r.begin, beta, rest, clip);
  });
}

/// The orthogonalised direction, from work.x, whose squares ctx.partials has.
const float* orthogonal(OpContext& ctx, std::uint64_t rows, std::uint64_t cols, const MuonWork& work) {
  double squares = 0;
  for (std::uint32_t task = 0; task < kMuonTasks; ++task) squares += ctx.partials[task];
  const float scale = static_cast<float>(1.0 / std::max(std::sqrt(squares), kSmallestMuonNorm));
  in_parts(ctx, rows * cols, [&](Range r, std::uint32_t) {
    for (std::uint64_t e = r.begin; e < r.end; ++e) work.x[e] *= scale;
  });
  return orthogonalise(ctx, rows, cols, work.x, work.other, work.gram, work.polynomial);
}

/// Adds the direction of elements [first, first + n) of a parameter, part of a tensor [rows, cols], to the
/// weight.
void apply(OpContext& ctx, const step::Op& op, std::uint64_t first, std::uint64_t n, std::uint64_t rows,
           std::uint64_t cols, const float* direction) {
  const double lr = ctx.step.lr;
  const float decay =
      op.flags & step::kDecay ? static_cast<float>(1.0 - lr * ctx.program.run.weight_decay) : 1.0f;
  // torch's adjust_lr_fn = "match_rms_adamw": the learning rate and weight decay of AdamW can be used.
  const auto step = static_cast<float>(lr * 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols))));
  const UpdatedWeight updated = updated_weight(ctx, op, first);
  in_parts(ctx, n, [&](Range r, std::uint32_t) {
    ctx.kernels.muon_apply(r.size(), direction + r.begin, updated.values + r.begin, decay, step);
    updated.store(ctx.kernels, r.begin, r.size());
  });
}

/// The number of this rank among those that have pieces of a direction.
std::uint64_t own_piece(const OpContext& ctx, const step::MuonSlice& s) {
  return s.ranks > 1 ? ctx.program.run.parallel.tensor_rank - 1 : 0;
}

float clip_of(OpContext& ctx, step::BufferId scalars) {
  return static_cast<float>(ctx.f64(scalars)[step::kClipFactor]);
}

}  // namespace

void run_muon(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[muon::kGrad]);
  const bool given = op.ins > muon::kDirection.slot;
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MuonSlice s = step::muon_slice(ctx.program, param, i);
    const std::uint64_t first = s.part.first_row * s.part.cols, n = s.part.rows * s.part.cols;
    if (given) {
      const float* direction = ctx.f32(op[muon::kDirection]) + own_piece(ctx, s) * s.piece + first;
      apply(ctx, op, first, n, s.rows, s.cols, direction);
      continue;
    }
    const MuonWork work(ctx.f32(op[muon::kWork]), s.rows, s.cols);
    momentum(ctx, n, ctx.f32(op[muon::kGrad]) + first, ctx.f32(op[muon::kM]) + first, work.x,
             clip_of(ctx, op[muon::kScalars]));
    apply(ctx, op, first, n, s.rows, s.cols, orthogonal(ctx, s.rows, s.cols, work));
  }
}

void run_muon_direction(OpContext& ctx, const step::Op& op) {
  const step::BufferId grad = op[muon_direction::kGrad];
  const step::MuonSlice s = step::muon_slice(ctx.program, step::param_of_gradient(ctx.program, grad), 0);
  momentum(ctx, s.piece, ctx.f32(grad), ctx.f32(op[muon_direction::kM]),
           ctx.f32(op[muon_direction::kX]) + own_piece(ctx, s) * s.piece,
           clip_of(ctx, op[muon_direction::kScalars]));
}

// Every TP rank orthogonalises the whole tensor: that of another one would have to be sent again.
void run_muon_orthogonalise(OpContext& ctx, const step::Op& op) {
  float* pieces = ctx.f32(op[muon_orthogonalise::kX]);
  const step::Param& param = step::param_of_direction(ctx.program, op[muon_orthogonalise::kX]);
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MuonSlice s = step::muon_slice(ctx.program, param, i);
    const MuonWork work(ctx.f32(op[muon_orthogonalise::kWork]), s.rows, s.cols);
    in_parts(ctx, s.rows, [&](Range rows, std::uint32_t task) {
      double squares = 0;
      for (std::uint64_t r = rows.begin; r < rows.end; ++r)
        for (std::uint64_t c = 0; c < s.cols; ++c) {
          const float value = work.x[r * s.cols + c] = pieces[s.index(r, c)];
          squares += static_cast<double>(value) * value;
        }
      ctx.partials[task] = squares;
    });
    const float* whole = orthogonal(ctx, s.rows, s.cols, work);
    const std::uint64_t own = own_piece(ctx, s), first_row = s.by_columns ? 0 : own * s.part.rows,
                        first_col = s.by_columns ? own * s.part.cols : 0;
    in_parts(ctx, s.part.rows, [&](Range rows, std::uint32_t) {
      for (std::uint64_t r = rows.begin; r < rows.end; ++r)
        for (std::uint64_t c = 0; c < s.part.cols; ++c)
          pieces[s.index(first_row + r, first_col + c)] = whole[(first_row + r) * s.cols + first_col + c];
    });
  }
}

}  // namespace trainhost::cpu
