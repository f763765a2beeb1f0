// Maps the optimizers that update tensor by tensor to kernels and products: AdamW with 8-bit moments, whose
// tensors share launches, Adafactor, and Muon. q, k and v are tensors of their own although they share a
// buffer, as are gate and up. Where their state is: core/step/state_layout.hpp.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "core/step/state_layout.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/kernels/tensor_optimizers.hpp"

namespace trainhost::cuda {
namespace {

using namespace step::operand;

/// Elements [first, first + elements) of the parameter that an operation updates.
template <class T>
TensorPiece<T> tensor_piece(OpContext& ctx, const step::Op& op, std::uint64_t first, std::uint64_t elements) {
  float* master = ctx.get<float>(op[optimizer::master(op.kind)]);
  return {elements, ctx.get<float>(op[optimizer::kGrad]) + first, ctx.get<T>(op[optimizer::kWeight]) + first,
          master ? master + first : nullptr, (op.flags & step::kDecay) != 0};
}

Moment8bitPiece moment_piece(OpContext& ctx, step::BufferId moment, const step::Moment8bit& tensor) {
  auto* bytes = ctx.get<std::byte>(moment);
  return {tensor.coded ? reinterpret_cast<std::uint8_t*>(bytes + tensor.codes) : nullptr,
          reinterpret_cast<float*>(bytes + tensor.floats)};
}

// The polynomial a x + b x^3 + c x^5 of Keller Jordan's Muon, and its steps.
constexpr float kQuinticA = 3.4445f, kQuinticB = -4.7750f, kQuinticC = 2.0315f;
constexpr int kNewtonSchulzSteps = 5;

/// Memory of the Newton-Schulz steps: x and other [rows, cols], gram and polynomial [n, n] of the smaller n.
struct MuonWork {
  float *x, *other, *gram, *polynomial;
};

/// x becomes orthogonal, up to singular values between about 0.7 and 1.2. Returns the buffer with the result,
/// x or other. For more rows than columns the square matrices are those of the transpose, so that nothing is
/// transposed. Products round their operands to TF32 unless the run computes in f32; torch's round to bf16.
const float* orthogonalise(OpContext& ctx, std::uint64_t rows, std::uint64_t cols, MuonWork w) {
  const bool wide = rows <= cols;
  const std::uint64_t n = std::min(rows, cols);
  GemmShape gram{wide ? Product::kForward : Product::kDw, rows, wide ? rows : cols, cols, DType::kF32};
  gram.tf32 = ctx.program.run.compute != DType::kF32;
  GemmShape polynomial = gram, next = gram;
  polynomial.product = next.product = Product::kDx;
  polynomial.add = next.add = true;
  polynomial.M = polynomial.n = polynomial.k = n;
  polynomial.scale = kQuinticC, polynomial.add_scale = kQuinticB;
  next.n = n, next.add_scale = kQuinticA;
  for (int i = 0; i < kNewtonSchulzSteps; ++i) {
    // x x^T of a wide matrix, x^T x of a tall one; then other = polynomial x + a x, or x polynomial + a x.
    ctx.gemm.run(ctx.stream, gram, w.x, w.x, nullptr, nullptr, w.gram);
    ctx.gemm.run(ctx.stream, polynomial, w.gram, w.gram, nullptr, w.gram, w.polynomial);
    ctx.gemm.run(ctx.stream, next, wide ? w.polynomial : w.x, wide ? w.x : w.polynomial, nullptr, w.x,
                 w.other);
    ctx.launches += 3;
    std::swap(w.x, w.other);
  }
  return w.x;
}

}  // namespace

template <class T>
void queue_adamw_8bit(OpContext& ctx, std::span<const step::Op> ops) {
  const AdamW constants = adamw_constants(ctx.program.run);
  const double* scalars = ctx.get<double>(ops.front()[adamw_8bit::kScalars]);
  Pieces8bit<T> pieces{};
  const auto queue = [&] {
    ctx.check_launch(cuda::adamw_8bit<T>(ctx.stream, pieces, constants, scalars), ops.front());
    pieces.count = 0;
  };
  for (const step::Op& op : ops)
    for (const step::Moment8bit& tensor :
         step::moments_8bit(ctx.program, step::param_of_gradient(ctx.program, op[adamw_8bit::kGrad]))) {
      if (pieces.count == kMax8bitPieces) queue();
      pieces.piece[pieces.count++] = {tensor_piece<T>(ctx, op, tensor.first_element, tensor.elements),
                                      moment_piece(ctx, op[adamw_8bit::kM], tensor),
                                      moment_piece(ctx, op[adamw_8bit::kV], tensor)};
    }
  queue();
}

/// Tensor i of a parameter, whole or the part of a TP rank. `of_parameter`: gradient, weight and master copy
/// of the parameter.
template <class T>
static AdafactorPart<T> adafactor_part(OpContext& ctx, const step::Param& param, std::size_t i,
                                       TensorPiece<T> of_parameter) {
  const step::FactoredSlice s = step::factored_slice(ctx.program, param, i);
  const std::uint64_t first = s.part.first_row * s.part.cols;
  AdafactorPart<T> t{};
  static_cast<TensorPiece<T>&>(t) = of_parameter;
  t.elements = s.part.rows * s.part.cols;
  t.grad += first;
  if (t.weight) t.weight += first;
  if (t.master) t.master += first;
  t.rows = s.part.rows, t.cols = s.part.cols, t.all_rows = s.rows, t.all_cols = s.cols;
  t.by_columns = s.by_columns;
  t.row_means = ctx.get<float>(param.m) + s.part.first_row;
  if (float* col_means = ctx.get<float>(param.v)) {
    t.col_means = col_means + i * s.part.cols;
  } else {
    t.rows = t.all_rows = 1, t.cols = s.part.rows, t.all_cols = s.rows;
    t.col_means = std::exchange(t.row_means, nullptr);
  }
  return t;
}

template <class T>
void queue_adafactor(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[adafactor::kGrad]);
  const step::Buffer& sums = ctx.buffer(op[adafactor::kSums]);
  const auto slots = static_cast<std::uint32_t>(sums.rows);
  double *scratch = ctx.get<double>(op[adafactor::kSums]),
         *scalars = ctx.get<double>(op[adafactor::kScalars]);
  const step::BufferId of_ranks = op[adafactor::kOfRanks];
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const AdafactorPart<T> t = adafactor_part<T>(ctx, param, i, tensor_piece<T>(ctx, op, 0, 0));
    if (of_ranks != step::kNoBuffer) {
      ctx.check_launch(adafactor_apply<T>(ctx.stream, t, ctx.program.run.eps, slots, sums.cols, scratch,
                                          scalars, ctx.get<float>(of_ranks) + i * ctx.buffer(of_ranks).cols,
                                          ctx.get<float>(op[adafactor::kChange]) + i),
                       op);
      ++ctx.launches;
      continue;
    }
    ctx.check_launch(
        cuda::adafactor<T>(ctx.stream, t, ctx.program.run.eps, slots, sums.cols, scratch, scalars), op);
    ctx.launches += t.row_means ? 4 : 2;  // check_launch() counts one
  }
}

template <class T>
void queue_adafactor_sums(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[adafactor_sums::kGrad]);
  const step::Buffer &sums = ctx.buffer(op[adafactor_sums::kSums]), &x = ctx.buffer(op[adafactor_sums::kX]);
  const TensorPiece<T> piece{0, ctx.get<float>(op[adafactor_sums::kGrad]),
                             ctx.get<T>(op[adafactor_sums::kWeight]),
                             ctx.get<float>(op[adafactor_sums::kMaster]), false};
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const AdafactorPart<T> t = adafactor_part<T>(ctx, param, i, piece);
    ctx.check_launch(cuda::adafactor_sums<T>(ctx.stream, t, static_cast<std::uint32_t>(sums.rows), sums.cols,
                                             ctx.get<double>(op[adafactor_sums::kSums]),
                                             ctx.get<double>(op[adafactor_sums::kScalars]),
                                             ctx.get<float>(op[adafactor_sums::kX]) + i * x.cols),
                     op);
    ctx.launches += !t.row_means ? 1 : t.by_columns ? 3 : 2;
  }
}

template <class T>
void queue_adafactor_change(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[adafactor_change::kGrad]);
  const step::Buffer &sums = ctx.buffer(op[adafactor_change::kSums]),
                     &x = ctx.buffer(op[adafactor_change::kOfRanks]);
  float* y = ctx.get<float>(op.out[op.outs - 1]);
  const TensorPiece<T> piece{0, ctx.get<float>(op[adafactor_change::kGrad]), nullptr, nullptr, false};
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const AdafactorPart<T> t = adafactor_part<T>(ctx, param, i, piece);
    ctx.check_launch(
        cuda::adafactor_change<T>(ctx.stream, t, static_cast<std::uint32_t>(sums.rows), sums.cols,
                                  ctx.get<double>(op[adafactor_change::kSums]),
                                  ctx.get<double>(op[adafactor_change::kScalars]),
                                  ctx.get<float>(op[adafactor_change::kOfRanks]) + i * x.cols, y + i),
        op);
    ctx.launches += t.row_means ? 3 : 2;
  }
}

/// torch's adjust_lr_fn = "match_rms_adamw": the learning rate and weight decay of AdamW can be used.
static double muon_lr_factor(std::uint64_t rows, std::uint64_t cols) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
}

/// The update of this rank's elements by a direction that other operations have computed.
template <class T>
static void queue_muon_apply(OpContext& ctx, const step::Op& op) {
  const step::Param& param = step::param_of_gradient(ctx.program, op[muon::kGrad]);
  const float* direction = ctx.get<float>(op[muon::kDirection]);
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MuonSlice s = step::muon_slice(ctx.program, param, i);
    const std::uint64_t first = s.part.first_row * s.part.cols, own = s.ranks > 1 ? ctx.tensor_rank() : 0;
    ctx.check_launch(muon_apply<T>(ctx.stream, tensor_piece<T>(ctx, op, first, s.part.rows * s.part.cols),
                                   direction + own * s.piece + first, muon_lr_factor(s.rows, s.cols),
                                   ctx.get<double>(op[muon::kScalars])),
                     op);
  }
}

void queue_muon_direction(OpContext& ctx, const step::Op& op) {
  const step::BufferId grad = op[muon_direction::kGrad];
  const std::uint64_t elements = ctx.buffer(grad).rows * ctx.buffer(grad).cols;
  const bool divided =
      step::is_divided_among_tensor_ranks(ctx.program, step::param_of_gradient(ctx.program, grad));
  const AdamW betas = adamw_constants(ctx.program.run);
  ctx.check_launch(
      muon_momentum(ctx.stream, elements, ctx.get<float>(grad), ctx.get<float>(op[muon_direction::kM]),
                    ctx.get<float>(op[muon_direction::kX]) + (divided ? ctx.tensor_rank() * elements : 0),
                    betas.beta1, betas.one_minus_beta1, ctx.get<double>(op[muon_direction::kScalars])),
      op);
}

// Every TP rank orthogonalises the whole tensor: that of another one would have to be sent again.
void queue_muon_orthogonalise(OpContext& ctx, const step::Op& op) {
  const step::BufferId x = op[muon_orthogonalise::kX];
  const step::Param& param = step::param_of_direction(ctx.program, x);
  float* pieces = ctx.get<float>(x);
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MuonSlice s = step::muon_slice(ctx.program, param, i);
    const std::uint64_t n = s.rows * s.cols, least = std::min(s.rows, s.cols);
    const MuonPieces tensor{s.rows,           s.cols,  s.part.rows,  s.part.cols,
                            s.part.first_row, s.piece, s.by_columns, s.ranks > 1 ? ctx.tensor_rank() : 0};
    float* whole = ctx.get<float>(op[muon_orthogonalise::kWork]);
    const MuonWork work{whole, whole + n, whole + 2 * n, whole + 2 * n + least * least};
    ctx.check_launch(
        muon_assemble(ctx.stream, tensor, pieces, work.x, work.other, ctx.scalar(step::kLossSum)), op);
    ++ctx.launches;  // two kernels
    ctx.check_launch(muon_take(ctx.stream, tensor, orthogonalise(ctx, s.rows, s.cols, work), pieces), op);
  }
}

template <class T>
void queue_muon(OpContext& ctx, const step::Op& op) {
  if (op.ins > muon::kDirection.slot) return queue_muon_apply<T>(ctx, op);
  const RunSpec& run = ctx.program.run;
  const step::Param& param = step::param_of_gradient(ctx.program, op[muon::kGrad]);
  const AdamW betas = adamw_constants(run);
  const double* scalars = ctx.get<double>(op[muon::kScalars]);
  for (std::size_t i = 0; i < param.slices.size(); ++i) {
    const step::MatrixSlice s = step::matrix_slice(ctx.program, param, i);
    const std::uint64_t n = s.rows * s.cols, least = std::min(s.rows, s.cols);
    const TensorPiece<T> t = tensor_piece<T>(ctx, op, s.first_row * s.cols, n);
    float* x = ctx.get<float>(op[muon::kWork]);
    const MuonWork work{x, x + n, x + 2 * n, x + 2 * n + least * least};
    ctx.check_launch(
        muon_direction(ctx.stream, n, t.grad, ctx.get<float>(op[muon::kM]) + s.first_row * s.cols, work.x,
                       betas.beta1, betas.one_minus_beta1, work.other, scalars),
        op);
    ++ctx.launches;  // two kernels
    const float* direction = orthogonalise(ctx, s.rows, s.cols, work);
    ctx.check_launch(muon_apply<T>(ctx.stream, t, direction, muon_lr_factor(s.rows, s.cols), scalars), op);
  }
}

template void queue_adamw_8bit<float>(OpContext&, std::span<const step::Op>);
template void queue_adamw_8bit<Bf16>(OpContext&, std::span<const step::Op>);
template void queue_adafactor<float>(OpContext&, const step::Op&);
template void queue_adafactor<Bf16>(OpContext&, const step::Op&);
template void queue_adafactor_sums<float>(OpContext&, const step::Op&);
template void queue_adafactor_sums<Bf16>(OpContext&, const step::Op&);
template void queue_adafactor_change<float>(OpContext&, const step::Op&);
template void queue_adafactor_change<Bf16>(OpContext&, const step::Op&);
template void queue_muon<float>(OpContext&, const step::Op&);
template void queue_muon<Bf16>(OpContext&, const step::Op&);

}  // namespace trainhost::cuda
