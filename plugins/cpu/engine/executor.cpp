// The order of things inside an update: all micro-batches, the gradient norm, the checks, and only then the weights.
#include "plugins/cpu/engine/executor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "core/model/rope.hpp"

namespace trainhost::cpu {

using plan::OpKind;
using plan::SectionKind;

bool one_run(OpKind kind) {
  return kind == OpKind::kGradSquares || kind == OpKind::kAdamW || kind == OpKind::kSgd || kind == OpKind::kSgdMomentum;
}

void run_ops(Exec& e, std::span<const plan::Op> ops) {
  const plan::Op& op = ops.front();
  switch (op.kind) {
    case OpKind::kEmbed: return run_embed(e, op);
    case OpKind::kRmsNorm: return run_rms_norm(e, op);
    case OpKind::kLinear: return run_linear(e, op);
    case OpKind::kQkNorm: return run_qk_norm(e, op);
    case OpKind::kRope: return run_rope(e, op, 1.0f);
    case OpKind::kAttention: return run_attention(e, op);
    case OpKind::kSwiGlu: return run_swiglu(e, op);
    case OpKind::kHeadLoss: return run_head(e, op);
    case OpKind::kHeadEval: return run_head(e, op);
    case OpKind::kHeadLogits: return run_head_logits(e, op);
    case OpKind::kRmsNormBwd: return run_rms_norm_bwd(e, op);
    case OpKind::kLinearDx: return run_linear_dx(e, op);
    case OpKind::kLinearDw: return run_linear_dw(e, op);
    case OpKind::kSwiGluBwd: return run_swiglu_bwd(e, op);
    case OpKind::kAttentionBwd: return run_attention_bwd(e, op);
    case OpKind::kRopeBwd: return run_rope(e, op, -1.0f);
    case OpKind::kQkNormBwd: return run_qk_norm_bwd(e, op);
    case OpKind::kEmbedBwd: return run_embed_bwd(e, op);
    case OpKind::kGradSquares: return run_grad_squares(e, ops);
    case OpKind::kAdamW: return run_optimizer(e, ops);
    case OpKind::kSgd: return run_optimizer(e, ops);
    case OpKind::kSgdMomentum: return run_optimizer(e, ops);
    case OpKind::kAttentionStep: return run_attention_step(e, op);
    // Of trainers with more than one tier.
    case OpKind::kCopy: case OpKind::kHold: case OpKind::kCrossEntropy: case OpKind::kHeadBwd: case OpKind::kAddGrad:
    case OpKind::kCount_: break;
  }
  throw std::logic_error("an operation that the cpu trainer does not have");
}

std::uint64_t counted_targets(const std::int32_t* targets, std::uint64_t n) {
  return n - static_cast<std::uint64_t>(std::count(targets, targets + n, -100));
}

Executor::Executor(const plan::Program& program, Storage& storage, Pool& pool, const Kernels& kernels, const Bf16Kernels* bf16)
    : exec_{program, storage, pool, kernels, {}, std::vector<double>(partials_needed(program)), program.find("vendor_workspace"),
            program.run.compute == DType::kBF16 ? bf16 : nullptr},
      scalars_(program.find("scalars")) {
  fill_rope_tables();
}

double* Executor::scalars() { return exec_.f64(scalars_); }

// table[pos] = cos[D/2] | sin[D/2] of pos * inv_freq, computed in double.
void Executor::fill_rope_tables() {
  const std::vector<double> inv_freq = rope_inv_freq(exec_.model());
  const std::size_t half = inv_freq.size();
  std::vector<bool> filled(exec_.program.buffers.size());
  for (const plan::Op& op : exec_.program.ops) {
    if (op.kind != OpKind::kRope || filled[op.in[1]]) continue;
    filled[op.in[1]] = true;
    float* table = exec_.f32(op.in[1]);
    for (std::uint64_t pos = 0; pos < exec_.buffer(op.in[1]).rows; ++pos)
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(pos) * inv_freq[i];
        table[pos * 2 * half + i] = static_cast<float>(std::cos(angle));
        table[pos * 2 * half + half + i] = static_cast<float>(std::sin(angle));
      }
  }
}

// False when the host wants to stop.
bool Executor::run(plan::Section section, const std::function<bool()>& cancelled, OpLog* log) {
  const std::vector<plan::Op>& ops = exec_.program.ops;
  for (std::uint32_t i = section.begin, end = i; i < section.end; i = end) {
    if (cancelled && cancelled()) return false;
    for (end = i + 1; end < section.end && one_run(ops[i].kind) && ops[end].kind == ops[i].kind;) ++end;
    for (std::uint32_t o = i; o < end; ++o) exec_.storage.enter(o);
    if (log) log->enter(i);
    run_ops(exec_, {&ops[i], end - i});
    if (log) log->leave(end - i);
    for (std::uint32_t o = i; o < end; ++o) exec_.storage.leave(o);
  }
  return true;
}

Outcome Executor::update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out) {
  const plan::Program& p = exec_.program;
  const std::uint64_t micro = p.run.tokens_per_micro_batch(), total = p.run.tokens_per_step();
  out.counted = counted_targets(in.targets, total);
  scalars()[plan::kLossSum] = 0.0;
  scalars()[plan::kNorm2] = 0.0;
  if (log_) log_->begin_update();
  for (std::uint64_t i = 0; i < p.run.accumulate; ++i) {
    exec_.step = {in.tokens + i * micro, in.targets + i * micro, micro, i == 0,
                  static_cast<float>(1.0 / static_cast<double>(out.counted)), in.lr, in.step_index, 0};
    if (!run(p.section(SectionKind::kMicro), cancelled, log_)) return Outcome::kCancelled;
  }
  out.loss = scalars()[plan::kLossSum] / static_cast<double>(out.counted);

  // The update section measures all gradients before it changes any weight; between the two lie the checks.
  const plan::Section section = p.section(SectionKind::kUpdate);
  plan::Section norms = section, weights = section;
  while (norms.end > norms.begin && p.ops[norms.end - 1].kind != OpKind::kGradSquares) --norms.end;
  weights.begin = norms.end;
  run(norms, nullptr, log_);
  out.grad_norm = std::sqrt(scalars()[plan::kNorm2]);
  if (!std::isfinite(out.loss) || !std::isfinite(out.grad_norm)) return Outcome::kNonFinite;
  const double clip = p.run.clip_norm;
  scalars()[plan::kClipFactor] = clip > 0.0 ? std::min(1.0, clip / (out.grad_norm + 1e-6)) : 1.0;
  run(weights, nullptr, log_);
  if (log_) log_->end_update();
  return Outcome::kDone;
}

Outcome Executor::evaluate(const std::int32_t* tokens, const std::int32_t* targets, std::uint32_t sequences,
                           const std::function<bool()>& cancelled, UpdateResult& out) {
  const plan::Program& p = exec_.program;
  const std::uint64_t rows = std::uint64_t{sequences} * p.run.seq_len;
  out.counted = counted_targets(targets, rows);
  scalars()[plan::kEvalLossSum] = 0.0;
  exec_.step = {tokens, targets, rows, true, 0.0f, 0.0, 0, 0};
  if (!run(p.section(SectionKind::kEval), cancelled)) return Outcome::kCancelled;
  out.loss = out.counted ? scalars()[plan::kEvalLossSum] / static_cast<double>(out.counted) : 0.0;
  return std::isfinite(out.loss) ? Outcome::kDone : Outcome::kNonFinite;
}

void Executor::next_logits(std::int32_t token, std::uint32_t position, float* logits) {
  const plan::Program& p = exec_.program;
  const plan::Section s = p.section(SectionKind::kGenerate);
  exec_.step = {&token, nullptr, 1, true, 0.0f, 0.0, 0, position};
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    const plan::Op& op = p.ops[i];
    exec_.storage.enter(i);
    run_ops(exec_, {&op, 1});
    if (op.kind == OpKind::kHeadLogits)
      std::memcpy(logits, exec_.f32(op.out[0]), exec_.buffer(op.out[0]).bytes());
    exec_.storage.leave(i);
  }
  exec_.step = {};
}

}  // namespace trainhost::cpu
