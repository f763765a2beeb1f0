// The update: sum of squares of all gradients, then one pass over each parameter; and, with ZeRO 2 and 3, the
// sum of the micro-batches' gradients. Operations of one kind are
// consecutive in the program and run together, because most parameters are too small to occupy all threads.
// The norm itself and the clip factor: core/executor. The loops: kernels/rows_optimizer.hpp.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <span>

#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

// Computed in double and rounded once: in f32, 1 - 0.999 has a relative error of up to 3e-5. t counts updates
// from 1.
AdamConstants adam_constants(const OpContext& ctx, bool decay, double clip_factor) {
  const RunSpec& r = ctx.program.run;
  const double t = static_cast<double>(ctx.step.step_index) + 1.0, lr = ctx.step.lr;
  AdamConstants c{};
  c.grad_scale = static_cast<float>(clip_factor);
  c.beta1 = static_cast<float>(r.beta1), c.one_minus_beta1 = static_cast<float>(1.0 - r.beta1);
  c.beta2 = static_cast<float>(r.beta2), c.one_minus_beta2 = static_cast<float>(1.0 - r.beta2);
  c.decay = decay ? static_cast<float>(1.0 - lr * r.weight_decay) : 1.0f;
  c.step_size = static_cast<float>(lr / (1.0 - std::pow(r.beta1, t)));
  c.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(r.beta2, t)));
  c.eps = static_cast<float>(r.eps);
  return c;
}

namespace {

// Parts depend on this constant and the shape only, and so do the bits of the sum of squares.
constexpr std::uint64_t kElementsPerTask = 16384;

std::uint32_t tasks_for(std::uint64_t elements) {
  return static_cast<std::uint32_t>((elements + kElementsPerTask - 1) / kElementsPerTask);
}

SgdConstants sgd_constants(const OpContext& ctx, bool decay, double clip_factor) {
  const RunSpec& r = ctx.program.run;
  SgdConstants c{};
  c.grad_scale = static_cast<float>(clip_factor);
  // The run file has one key for the momentum of SGD and beta1 of Adam.
  c.momentum = static_cast<float>(r.beta1);
  c.decay = decay ? static_cast<float>(1.0 - ctx.step.lr * r.weight_decay) : 1.0f;
  c.lr = static_cast<float>(ctx.step.lr);
  return c;
}

LionConstants lion_constants(const OpContext& ctx, bool decay, double clip_factor) {
  const RunSpec& r = ctx.program.run;
  LionConstants c{};
  c.grad_scale = static_cast<float>(clip_factor);
  c.beta1 = static_cast<float>(r.beta1), c.one_minus_beta1 = static_cast<float>(1.0 - r.beta1);
  c.beta2 = static_cast<float>(r.beta2), c.one_minus_beta2 = static_cast<float>(1.0 - r.beta2);
  c.decay = decay ? static_cast<float>(1.0 - ctx.step.lr * r.weight_decay) : 1.0f;
  c.lr = static_cast<float>(ctx.step.lr);
  return c;
}

/// The elements of its first operand, the gradient, on which the operation works: all, or the shard of this
/// rank. Of kAddGrad those of the whole gradient that are added.
Shard elements_of(const step::Program& p, const step::Op& op) {
  static_assert(grad_squares::kGrad.slot == optimizer::kGrad.slot &&
                add_grad::kPart.slot == optimizer::kGrad.slot);
  const step::BufferId grad = op[optimizer::kGrad];
  return op.kind == step::OpKind::kGradSquares || op.kind == step::OpKind::kAddGrad
             ? step::shard_of(p, grad)
             : step::updated_elements(p, grad);
}
std::uint64_t elements(const OpContext& ctx, const step::Op& op) {
  return elements_of(ctx.program, op).count;
}

// Runs f on the tasks of all operations, numbered consecutively.
template <class F>
void over_elements(OpContext& ctx, std::span<const step::Op> ops, F&& f) {
  std::uint32_t tasks = 0;
  for (const step::Op& op : ops) tasks += tasks_for(elements(ctx, op));
  ctx.pool.run(tasks, [&](std::uint32_t task, std::uint32_t) {
    std::uint32_t i = task;
    const step::Op* op = ops.data();
    // Finds the parameter of the task. Linear, because there are a few hundred parameters and a task takes
    // longer.
    for (std::uint32_t n; i >= (n = tasks_for(elements(ctx, *op))); ++op) i -= n;
    f(*op, part(elements(ctx, *op), i, tasks_for(elements(ctx, *op))), task);
  });
}

}  // namespace

void run_grad_squares(OpContext& ctx, std::span<const step::Op> ops) {
  assert(!ops.empty());
  over_elements(ctx, ops, [&](const step::Op& op, Range r, std::uint32_t task) {
    const std::uint64_t first = elements_of(ctx.program, op).first + r.begin;
    ctx.partials[task] = ctx.kernels.sum_squares(r.size(), ctx.f32(op[grad_squares::kGrad]) + first);
  });
  double* norm2 = ctx.f64(ops.front()[grad_squares::kScalars]) + step::kNorm2;
  // In the order of the tasks, whichever thread has computed them.
  std::uint32_t task = 0;
  std::fill(ctx.layer_squares.begin(), ctx.layer_squares.end(), 0.0);
  for (const step::Op& op : ops)
    for (std::uint32_t n = tasks_for(elements(ctx, op)); n > 0; --n, ++task) {
      *norm2 += ctx.partials[task];
      ctx.layer_squares[static_cast<std::size_t>(op.layer + 1)] += ctx.partials[task];
    }
}

void run_add_grad(OpContext& ctx, std::span<const step::Op> ops) {
  over_elements(ctx, ops, [&](const step::Op& op, Range r, std::uint32_t) {
    const float* from = ctx.f32(op[add_grad::kPart]) + elements_of(ctx.program, op).first + r.begin;
    float* to = ctx.f32(op[add_grad::kGrad]) + r.begin;
    if (ctx.overwrite(op))
      std::copy_n(from, r.size(), to);
    else
      ctx.kernels.add(r.size(), from, to);
  });
}

// The master copy has the elements that this rank updates alone.
UpdatedWeight updated_weight(OpContext& ctx, const step::Op& op, std::uint64_t first) {
  const step::BufferId weight = op[optimizer::kWeight], master = op[optimizer::master(op.kind)];
  const std::uint64_t at = step::updated_elements(ctx.program, weight).first + first;
  if (!ctx.stores_bf16()) return {ctx.f32(weight) + at, nullptr};
  return {ctx.f32(master) + first, ctx.at<Bf16>(weight) + at};
}

void run_optimizer(OpContext& ctx, std::span<const step::Op> ops) {
  const step::OpKind kind = ops.front().kind;
  const double clip = ctx.f64(ops.front()[optimizer::scalars(kind)])[step::kClipFactor];
  // Index 1: with weight decay. Parameters differ in nothing else.
  const AdamConstants adam[2] = {adam_constants(ctx, false, clip), adam_constants(ctx, true, clip)};
  const SgdConstants sgd[2] = {sgd_constants(ctx, false, clip), sgd_constants(ctx, true, clip)};
  const LionConstants lion[2] = {lion_constants(ctx, false, clip), lion_constants(ctx, true, clip)};
  over_elements(ctx, ops, [&](const step::Op& op, Range r, std::uint32_t) {
    const bool decay = op.flags & step::kDecay;
    // Moments have the elements that are updated alone; with ZeRO 2 the gradient too, with 3 also the weight.
    const auto first = [&](step::BufferId b) {
      return step::updated_elements(ctx.program, b).first + r.begin;
    };
    const step::BufferId grad = op[optimizer::kGrad];
    const float* g = ctx.f32(grad) + first(grad);
    const UpdatedWeight updated = updated_weight(ctx, op, r.begin);
    float* w = updated.values;
    if (kind == step::OpKind::kAdamW)
      ctx.kernels.adamw(r.size(), g, w, ctx.f32(op[optimizer::kM]) + r.begin,
                        ctx.f32(op[adamw::kV]) + r.begin, adam[decay]);
    else if (kind == step::OpKind::kSgdMomentum)
      ctx.kernels.sgd_momentum(r.size(), g, w, ctx.f32(op[optimizer::kM]) + r.begin, sgd[decay]);
    else if (kind == step::OpKind::kLion)
      ctx.kernels.lion(r.size(), g, w, ctx.f32(op[optimizer::kM]) + r.begin, lion[decay]);
    else
      ctx.kernels.sgd(r.size(), g, w, sgd[decay]);
    updated.store(ctx.kernels, 0, r.size());
  });
}

std::size_t partials_needed(const step::Program& p) {
  // The maximum, not the sum: operations run one after the other and share the array.
  std::uint64_t squares = 0, losses = 1;
  for (const step::Op& op : p.ops) {
    if (op.kind == step::OpKind::kGradSquares) squares += tasks_for(elements_of(p, op).count);
    if (op.kind == step::OpKind::kMuon) losses = std::max<std::uint64_t>(losses, kMuonTasks);
    if (op.kind == step::OpKind::kHeadLoss || op.kind == step::OpKind::kHeadEval) {
      const step::Buffer& logits = p[op[head::logits(op.kind)]];
      losses = std::max<std::uint64_t>(losses, OpContext::row_parts(logits.rows, logits.cols));
    }
  }
  return std::max(squares, losses);
}

}  // namespace trainhost::cpu
