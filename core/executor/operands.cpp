// See operands.hpp; the slots are those of OpKind's comments.
#include "core/executor/operands.hpp"

#include <algorithm>
#include <cmath>

namespace trainhost::executor {

using step::Op;
using step::OpKind;

Embed Operands::embed(const Op& op, const StepState& s) const {
  const step::Buffer& table = buffer(op.in[0]);
  return {s.rows, table.rows, table.cols, f32(op.in[0]), s.tokens, f32(op.out[0])};
}

EmbedBwd Operands::embed_bwd(const Op& op, const StepState& s) const {
  const step::Buffer& grad = buffer(op.in[2]);
  return {s.rows, grad.rows, grad.cols, f32(op.in[0]), s.tokens, f32(op.in[2]), s.overwrite(op)};
}

RmsNorm Operands::rms_norm(const Op& op, const StepState& s) const {
  return {s.rows, buffer(op.in[0]).cols, f32(op.in[0]), f32(op.in[1]), eps(), f32(op.out[0]), f32(op.out[1])};
}

RmsNormBwd Operands::rms_norm_bwd(const Op& op, const StepState& s) const {
  return {s.rows,         buffer(op.in[1]).cols,
          f32(op.in[0]),  f32(op.in[1]),
          f32(op.in[2]),  f32(op.in[3]),
          f32(op.out[0]), !(op.flags & step::kFreshDx),
          f32(op.in[5]),  s.overwrite(op),
          f32(op.in[6]),  static_cast<std::uint32_t>(buffer(op.in[6]).rows)};
}

Linear Operands::linear(const Op& op, const StepState& s) const {
  const step::Buffer& w = buffer(op.in[1]);
  return {s.rows, w.rows, w.cols, f32(op.in[0]), f32(op.in[1]), f32(op.in[2]), f32(op.in[3]), f32(op.out[0])};
}

LinearDx Operands::linear_dx(const Op& op, const StepState& s) const {
  const step::Buffer& w = buffer(op.in[1]);
  return {s.rows, w.rows, w.cols, f32(op.in[0]), f32(op.in[1]), f32(op.out[0])};
}

LinearDw Operands::linear_dw(const Op& op, const StepState& s) const {
  const step::Buffer& grad = buffer(op.in[2]);
  return {s.rows,        grad.rows,     grad.cols,     f32(op.in[0]),
          f32(op.in[1]), f32(op.in[2]), f32(op.in[3]), s.overwrite(op)};
}

QkNorm Operands::qk_norm(const Op& op, const StepState& s) const {
  return {s.rows, heads(),       f32(op.in[1]),  f32(op.in[2]),
          eps(),  f32(op.in[0]), f32(op.out[1]), f32(op.out[2])};
}

QkNormBwd Operands::qk_norm_bwd(const Op& op, const StepState& s) const {
  return {s.rows,        heads(),         f32(op.in[1]), f32(op.in[2]),
          f32(op.in[3]), f32(op.in[4]),   f32(op.in[0]), f32(op.in[5]),
          f32(op.in[6]), s.overwrite(op), f32(op.in[7]), program_.profile.slots};
}

Rope Operands::rope(const Op& op, const StepState& s) const {
  return {s.rows,       program_.run.seq_len, s.position,
          heads(),      f32(op.in[1]),        op.kind == OpKind::kRope ? 1.0f : -1.0f,
          f32(op.in[0])};
}

Attention Operands::attention(const Op& op, const StepState& s) const {
  const step::Buffer& scratch = buffer(op.in[1]);
  return {s.rows / program_.run.seq_len,
          program_.run.seq_len,
          heads(),
          program_.model.window(static_cast<std::uint32_t>(op.layer)),
          f32(op.in[0]),
          f32(op.out[0]),
          f32(op.out[1]),
          f32(op.in[1]),
          scratch.rows,
          scratch.cols};
}

AttentionBwd Operands::attention_bwd(const Op& op, const StepState& s) const {
  const step::Buffer& scratch = buffer(op.in[4]);
  return {s.rows / program_.run.seq_len,
          program_.run.seq_len,
          heads(),
          program_.model.window(static_cast<std::uint32_t>(op.layer)),
          f32(op.in[0]),
          f32(op.in[1]),
          f32(op.in[2]),
          f32(op.in[3]),
          f32(op.out[0]),
          f32(op.in[4]),
          scratch.rows,
          scratch.cols};
}

AttentionStep Operands::attention_step(const Op& op, const StepState& s) const {
  return {s.position,    program_.run.seq_len,
          heads(),       program_.model.window(static_cast<std::uint32_t>(op.layer)),
          f32(op.in[0]), f32(op.in[1]),
          f32(op.in[2]), f32(op.in[3]),
          f32(op.out[0])};
}

SwiGlu Operands::swiglu(const Op& op, const StepState& s) const {
  return {s.rows, buffer(op.out[0]).cols, f32(op.in[0]), f32(op.out[0])};
}

SwiGluBwd Operands::swiglu_bwd(const Op& op, const StepState& s) const {
  return {s.rows, buffer(op.in[0]).cols, f32(op.in[0]), f32(op.in[1])};
}

std::uint64_t Operands::head_chunk_rows(const Op& op) const {
  return buffer(op.in[op.kind == OpKind::kHeadLoss ? 4 : 3]).rows;
}

HeadChunk Operands::head(const Op& op, const StepState& s, std::uint64_t first) const {
  const bool train = op.kind == OpKind::kHeadLoss;
  const step::BufferId logits = op.in[train ? 4 : 3];
  const std::uint64_t vocab = buffer(op.in[1]).rows, hidden = buffer(op.in[1]).cols;
  const std::uint64_t rows = std::min(buffer(logits).rows, s.rows - first);
  float *hf = f32(op.in[0]) + first * hidden, *l = f32(logits);
  const float* w = f32(op.in[1]);
  return {
      {rows, vocab, hidden, hf, w, nullptr, nullptr, l},
      {rows, vocab, l, s.targets + first, s.loss_scale, train},
      {rows, vocab, hidden, l, hf, train ? f32(op.in[3]) : nullptr, nullptr, first == 0 && s.overwrite(op)},
      {rows, vocab, hidden, l, w, hf}};
}

Linear Operands::head_logits(const Op& op) const {
  const step::Buffer& w = buffer(op.in[1]);
  return {1, w.rows, w.cols, f32(op.in[0]), f32(op.in[1]), nullptr, nullptr, f32(op.out[0])};
}

double& Operands::sum(const Op& op) const {
  switch (op.kind) {
    case OpKind::kHeadLoss:
      return storage_.f64(op.in[5])[step::kLossSum];
    case OpKind::kHeadEval:
      return storage_.f64(op.in[4])[step::kEvalLossSum];
    default:
      return storage_.f64(op.in[1])[step::kNorm2];
  }
}

SumSquares Operands::sum_squares(const Op& op) const { return {elements(op.in[0]), f32(op.in[0])}; }

float Operands::decay(const Op& op, const StepState& s) const {
  return op.flags & step::kDecay ? static_cast<float>(1.0 - s.lr * program_.run.weight_decay) : 1.0f;
}

float Operands::clip(const Op& op, int scalars) const {
  return static_cast<float>(storage_.f64(op.in[scalars])[step::kClipFactor]);
}

AdamW Operands::adamw(const Op& op, const StepState& s) const {
  const RunSpec& r = program_.run;
  const double t = static_cast<double>(s.step_index) + 1.0;
  AdamW a{};
  a.count = elements(op.in[0]);
  a.grad = f32(op.in[0]), a.w = f32(op.in[1]), a.m = f32(op.in[2]), a.v = f32(op.in[3]);
  a.grad_scale = clip(op, 4);
  a.beta1 = static_cast<float>(r.beta1), a.one_minus_beta1 = static_cast<float>(1.0 - r.beta1);
  a.beta2 = static_cast<float>(r.beta2), a.one_minus_beta2 = static_cast<float>(1.0 - r.beta2);
  a.decay = decay(op, s);
  a.step_size = static_cast<float>(s.lr / (1.0 - std::pow(r.beta1, t)));
  a.inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(r.beta2, t)));
  a.eps = static_cast<float>(r.eps);
  return a;
}

Sgd Operands::sgd(const Op& op, const StepState& s) const {
  return {elements(op.in[0]), f32(op.in[0]), f32(op.in[1]),
          clip(op, 2),        decay(op, s),  static_cast<float>(s.lr)};
}

SgdMomentum Operands::sgd_momentum(const Op& op, const StepState& s) const {
  return {elements(op.in[0]), f32(op.in[0]),
          f32(op.in[1]),      f32(op.in[2]),
          clip(op, 3),        static_cast<float>(program_.run.beta1),
          decay(op, s),       static_cast<float>(s.lr)};
}

}  // namespace trainhost::executor
