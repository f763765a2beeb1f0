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

}  // namespace

void run_muon(OpContext& ctx, const step::Op& op) {
  const RunSpec& run = ctx.program.run;
  const step::Param& param = step::param_of_gradient(ctx.program, op[muon::kGrad]);
  const float clip = static_cast<float>(ctx.f64(op[muon::kScalars])[step::kClipFactor]);
  const float beta = static_cast<float>(run.beta1), rest = static_cast<float>(1.0 - run.beta1);
  const double lr = ctx.step.lr;
  const float decay = op.flags & step::kDecay ? static_cast<float>(1.0 - lr * run.weight_decay) : 1.0f;
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MatrixSlice s = step::matrix_slice(ctx.program, param, i);
    const std::uint64_t first = s.first_row * s.cols, n = s.rows * s.cols, least = std::min(s.rows, s.cols);
    const float* g = ctx.f32(op[muon::kGrad]) + first;
    const UpdatedWeight updated = updated_weight(ctx, op, first);
    float *w = updated.values, *m = ctx.f32(op[muon::kM]) + first;
    float *x = ctx.f32(op[muon::kWork]), *other = x + n, *gram = other + n,
          *polynomial = gram + least * least;
    ctx.pool.run(kMuonTasks, [&](std::uint32_t task, std::uint32_t) {
      const Range r = part(n, task, kMuonTasks);
      ctx.partials[task] =
          ctx.kernels.muon_momentum(r.size(), g + r.begin, m + r.begin, x + r.begin, beta, rest, clip);
    });
    double squares = 0;
    for (std::uint32_t task = 0; task < kMuonTasks; ++task) squares += ctx.partials[task];
    const float scale = static_cast<float>(1.0 / std::max(std::sqrt(squares), kSmallestMuonNorm));
    ctx.pool.run(kMuonTasks, [&](std::uint32_t task, std::uint32_t) {
      const Range r = part(n, task, kMuonTasks);
      for (std::uint64_t e = r.begin; e < r.end; ++e) x[e] *= scale;
    });
    const float* direction = orthogonalise(ctx, s.rows, s.cols, x, other, gram, polynomial);
    // torch's adjust_lr_fn = "match_rms_adamw": the learning rate and weight decay of AdamW can be used.
    const auto step = static_cast<float>(lr * 0.2 * std::sqrt(static_cast<double>(std::max(s.rows, s.cols))));
    ctx.pool.run(kMuonTasks, [&](std::uint32_t task, std::uint32_t) {
      const Range r = part(n, task, kMuonTasks);
      ctx.kernels.muon_apply(r.size(), direction + r.begin, w + r.begin, decay, step);
      updated.store(ctx.kernels, r.begin, r.size());
    });
  }
}

}  // namespace trainhost::cpu
