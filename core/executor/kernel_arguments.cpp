// See kernel_arguments.hpp. One function per kernel: pointers from the operands of the operation, dimensions
// from the shapes of its buffers, scalars from the run and the step. The checker has verified shapes and
// types of all operands (core/placement/check_shapes.cpp), so nothing is checked here; an absent operand is a
// null pointer. M rows are those of the step: a validation batch may have fewer than the program.
#include "core/executor/kernel_arguments.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"

namespace trainhost::executor {

using step::Op;
using step::OpKind;
namespace operand = step::operand;
using namespace step::operand;

Embed KernelArguments::embed(const Op& op, const StepState& s) const {
  const step::Buffer& table = buffer(op[embed::kTable]);
  return {s.rows, table.rows, table.cols, f32(op[embed::kTable]), s.tokens, f32(op[embed::kX])};
}

/// overwrite is true for the first contribution of an update: gradients are never cleared.
EmbedBwd KernelArguments::embed_bwd(const Op& op, const StepState& s) const {
  const step::Buffer& grad = buffer(op[embed_bwd::kGradTable]);
  return {
      s.rows,         grad.rows, grad.cols, f32(op[embed_bwd::kDx]), s.tokens, f32(op[embed_bwd::kGradTable]),
      s.overwrite(op)};
}

RmsNorm KernelArguments::rms_norm(const Op& op, const StepState& s) const {
  return {s.rows, buffer(op[rms_norm::kX]).cols, f32(op[rms_norm::kX]),   f32(op[rms_norm::kWeight]),
          eps(),  f32(op[rms_norm::kY]),         f32(op[rms_norm::kRstd])};
}

/// dx is added to the residual gradient except at the last norm (kFreshDx), where none exists yet. Partial
/// sums: one row per slot, added up in a fixed order.
RmsNormBwd KernelArguments::rms_norm_bwd(const Op& op, const StepState& s) const {
  return {s.rows,
          buffer(op[rms_norm_bwd::kX]).cols,
          f32(op[rms_norm_bwd::kDy]),
          f32(op[rms_norm_bwd::kX]),
          f32(op[rms_norm_bwd::kRstd]),
          f32(op[rms_norm_bwd::kWeight]),
          f32(op[rms_norm_bwd::kDx]),
          !(op.flags & step::kFreshDx),
          f32(op[rms_norm_bwd::kGradWeight]),
          s.overwrite(op),
          f32(op[rms_norm_bwd::kPartials]),
          static_cast<std::uint32_t>(buffer(op[rms_norm_bwd::kPartials]).rows)};
}

/// y = x W^T + bias + residual with W [outputs, inputs]; bias and residual may be null.
Linear KernelArguments::linear(const Op& op, const StepState& s) const {
  const step::Buffer& w = buffer(op[linear::kWeight]);
  return {s.rows,
          w.rows,
          w.cols,
          f32(op[linear::kX]),
          f32(op[linear::kWeight]),
          f32(op[linear::kBias]),
          f32(op[linear::kResidual]),
          f32(op[linear::kY])};
}

LinearDx KernelArguments::linear_dx(const Op& op, const StepState& s) const {
  const step::Buffer& w = buffer(op[linear_dx::kWeight]);
  return {
      s.rows, w.rows, w.cols, f32(op[linear_dx::kDy]), f32(op[linear_dx::kWeight]), f32(op[linear_dx::kDx])};
}

LinearDw KernelArguments::linear_dw(const Op& op, const StepState& s) const {
  const step::Buffer& grad = buffer(op[linear_dw::kGradWeight]);
  return {s.rows,
          grad.rows,
          grad.cols,
          f32(op[linear_dw::kDy]),
          f32(op[linear_dw::kX]),
          f32(op[linear_dw::kGradWeight]),
          f32(op[linear_dw::kGradBias]),
          s.overwrite(op)};
}

QkNorm KernelArguments::qk_norm(const Op& op, const StepState& s) const {
  return {s.rows,
          heads(),
          f32(op[qk_norm::kQWeight]),
          f32(op[qk_norm::kKWeight]),
          eps(),
          f32(op[qk_norm::kQkv]),
          f32(op[qk_norm::kPre]),
          f32(op[qk_norm::kRstd])};
}

QkNormBwd KernelArguments::qk_norm_bwd(const Op& op, const StepState& s) const {
  return {s.rows,
          heads(),
          f32(op[qk_norm_bwd::kPre]),
          f32(op[qk_norm_bwd::kRstd]),
          f32(op[qk_norm_bwd::kQWeight]),
          f32(op[qk_norm_bwd::kKWeight]),
          f32(op[qk_norm_bwd::kDQkv]),
          f32(op[qk_norm_bwd::kGradQWeight]),
          f32(op[qk_norm_bwd::kGradKWeight]),
          s.overwrite(op),
          f32(op[qk_norm_bwd::kPartials]),
          program_.traits.slots};
}

/// The rotation by the negative angle is the gradient of the rotation.
Rope KernelArguments::rope(const Op& op, const StepState& s) const {
  return {s.rows,
          program_.run.seq_len,
          s.position,
          heads(),
          f32(op[rope::kTable]),
          op.kind == OpKind::kRope ? 1.0f : -1.0f,
          f32(op[rope::kQkv])};
}

/// Rows are whole sequences. The window is a property of the layer: 0 = full attention.
Attention KernelArguments::attention(const Op& op, const StepState& s) const {
  assert(s.rows % program_.run.seq_len == 0 && op.layer >= 0);
  const step::Buffer& scratch = buffer(op[attention::kScratch]);
  return {s.rows / program_.run.seq_len,
          program_.run.seq_len,
          heads(),
          program_.model.window(static_cast<std::uint32_t>(op.layer)),
          f32(op[attention::kQkv]),
          f32(op[attention::kO]),
          f32(op[attention::kLse]),
          f32(op[attention::kScratch]),
          scratch.rows,
          scratch.cols,
          s.starts};
}

AttentionBwd KernelArguments::attention_bwd(const Op& op, const StepState& s) const {
  const step::Buffer& scratch = buffer(op[attention_bwd::kScratch]);
  return {s.rows / program_.run.seq_len,
          program_.run.seq_len,
          heads(),
          program_.model.window(static_cast<std::uint32_t>(op.layer)),
          f32(op[attention_bwd::kDO]),
          f32(op[attention_bwd::kO]),
          f32(op[attention_bwd::kLse]),
          f32(op[attention_bwd::kQkv]),
          f32(op[attention_bwd::kDQkv]),
          f32(op[attention_bwd::kScratch]),
          scratch.rows,
          scratch.cols,
          s.starts};
}

/// One row; the caches hold the keys and values of the positions before.
AttentionStep KernelArguments::attention_step(const Op& op, const StepState& s) const {
  return {s.position,
          program_.run.seq_len,
          heads(),
          program_.model.window(static_cast<std::uint32_t>(op.layer)),
          f32(op[attention_step::kQkv]),
          f32(op[attention_step::kCacheK]),
          f32(op[attention_step::kCacheV]),
          f32(op[attention_step::kScratch]),
          f32(op[attention_step::kO])};
}

SwiGlu KernelArguments::swiglu(const Op& op, const StepState& s) const {
  return {s.rows, buffer(op[swiglu::kAct]).cols, f32(op[swiglu::kGateUp]), f32(op[swiglu::kAct])};
}

SwiGluBwd KernelArguments::swiglu_bwd(const Op& op, const StepState& s) const {
  return {s.rows, buffer(op[swiglu_bwd::kDAct]).cols, f32(op[swiglu_bwd::kDAct]),
          f32(op[swiglu_bwd::kGateUp])};
}

/// Tokens whose logits are computed at a time; the last chunk may have fewer.
std::uint64_t KernelArguments::head_chunk_rows(const Op& op) const {
  return buffer(op[operand::head::logits(op.kind)]).rows;
}

/// The four calls of one chunk of the head: logits, loss with its gradient in place, weight gradient,
/// gradient of the hidden states, which replaces hf; the weight gradient has read it before. Only the first
/// chunk of the first micro-batch overwrites the gradient.
HeadChunk KernelArguments::head(const Op& op, const StepState& s, std::uint64_t first) const {
  assert(first < s.rows);
  const bool train = op.kind == OpKind::kHeadLoss;
  const step::BufferId logits = op[operand::head::logits(op.kind)];
  const step::Buffer& weight = buffer(op[operand::head::kHead]);
  const std::uint64_t vocab = weight.rows, hidden = weight.cols;
  const std::uint64_t rows = std::min(buffer(logits).rows, s.rows - first);
  float *hf = f32(op[operand::head::kHf]) + first * hidden, *l = f32(logits);
  const float* w = f32(op[operand::head::kHead]);
  return {{rows, vocab, hidden, hf, w, nullptr, nullptr, l},
          {rows, vocab, l, s.targets + first, s.loss_scale, train},
          {rows, vocab, hidden, l, hf, train ? f32(op[head_loss::kGradHead]) : nullptr, nullptr,
           first == 0 && s.overwrite(op)},
          {rows, vocab, hidden, l, w, hf}};
}

/// Generation: one row of logits, the output of the program.
Linear KernelArguments::head_logits(const Op& op) const {
  const step::Buffer& w = buffer(op[head_logits::kHead]);
  return {1,
          w.rows,
          w.cols,
          f32(op[head_logits::kHf]),
          f32(op[head_logits::kHead]),
          nullptr,
          nullptr,
          f32(op[head_logits::kLogits])};
}

/// Where a kernel's sum goes: the scalars of the program, in double.
double& KernelArguments::sum(const Op& op) const {
  switch (op.kind) {
    case OpKind::kHeadLoss:
      return storage_.f64(op[head_loss::kScalars])[step::kLossSum];
    case OpKind::kHeadEval:
      return storage_.f64(op[head_eval::kScalars])[step::kEvalLossSum];
    default:
      return storage_.f64(op[grad_squares::kScalars])[step::kNorm2];
  }
}

SumSquares KernelArguments::sum_squares(const Op& op) const {
  const Shard part = step::shard_of(program_, op[grad_squares::kGrad]);
  return {part.count, f32(op[grad_squares::kGrad]) + part.first};
}

/// Decoupled weight decay (AdamW, algorithm 2 of Loshchilov and Hutter): w is scaled by 1 - lr *
/// weight_decay, for tensors of two or more dimensions only.
float KernelArguments::decay(const Op& op, const StepState& s) const {
  return op.flags & step::kDecay ? static_cast<float>(1.0 - s.lr * program_.run.weight_decay) : 1.0f;
}

/// The first element of a weight or gradient that this rank updates.
float* KernelArguments::updated(step::BufferId b) const {
  return f32(b) + step::updated_elements(program_, b).first;
}

float KernelArguments::clip_factor(const Op& op) const {
  return static_cast<float>(storage_.f64(op[optimizer::scalars(op.kind)])[step::kClipFactor]);
}

/// Bias corrections are folded into two scalars, computed in double: step_size = lr / (1 - beta1^t) and 1 /
/// sqrt(1 - beta2^t), t counted from 1. The kernel then does no power per element.
AdamW KernelArguments::adamw(const Op& op, const StepState& s) const {
  const RunSpec& r = program_.run;
  const double t = static_cast<double>(s.step_index) + 1.0;
  AdamW a{};
  const std::uint64_t count = step::updated_elements(program_, op[adamw::kGrad]).count;
  a.count = count;
  a.grad = updated(op[adamw::kGrad]), a.w = updated(op[adamw::kWeight]);
  a.m = f32(op[adamw::kM]), a.v = f32(op[adamw::kV]);
  a.grad_scale = clip_factor(op);
  a.beta1 = static_cast<float>(r.beta1), a.one_minus_beta1 = static_cast<float>(1.0 - r.beta1);
  a.beta2 = static_cast<float>(r.beta2), a.one_minus_beta2 = static_cast<float>(1.0 - r.beta2);
  a.decay = decay(op, s);
  a.step_size = static_cast<float>(s.lr / (1.0 - std::pow(r.beta1, t)));
  a.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(r.beta2, t)));
  a.eps = static_cast<float>(r.eps);
  return a;
}

Sgd KernelArguments::sgd(const Op& op, const StepState& s) const {
  const std::uint64_t count = step::updated_elements(program_, op[sgd::kGrad]).count;
  return {count,        updated(op[sgd::kGrad]), updated(op[sgd::kWeight]), clip_factor(op),
          decay(op, s), static_cast<float>(s.lr)};
}

/// The decay acts on the weight, as for AdamW; momentum = betas[0].
SgdMomentum KernelArguments::sgd_momentum(const Op& op, const StepState& s) const {
  const std::uint64_t count = step::updated_elements(program_, op[sgd_momentum::kGrad]).count;
  return {count,
          updated(op[sgd_momentum::kGrad]),
          updated(op[sgd_momentum::kWeight]),
          f32(op[sgd_momentum::kM]),
          clip_factor(op),
          static_cast<float>(program_.run.beta1),
          decay(op, s),
          static_cast<float>(s.lr)};
}

Lion KernelArguments::lion(const Op& op, const StepState& s) const {
  const RunSpec& r = program_.run;
  const std::uint64_t count = step::updated_elements(program_, op[lion::kGrad]).count;
  return {count,
          updated(op[lion::kGrad]),
          updated(op[lion::kWeight]),
          f32(op[lion::kM]),
          clip_factor(op),
          static_cast<float>(r.beta1),
          static_cast<float>(1.0 - r.beta1),
          static_cast<float>(r.beta2),
          static_cast<float>(1.0 - r.beta2),
          decay(op, s),
          static_cast<float>(s.lr)};
}

}  // namespace trainhost::executor
