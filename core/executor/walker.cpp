// See walker.hpp. Order of an update: all micro-batches, the gradient norm, the check for finite values, and
// only then the weights. A step that is cancelled or not finite therefore leaves weights and moments
// unchanged.
#include "core/executor/walker.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/bf16.hpp"
#include "core/executor/nonfinite.hpp"
#include "core/model/model_spec.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"

namespace trainhost::executor {

using step::OpKind;
using step::SectionKind;

/// -100: not counted in the loss.
Walker::Walker(const step::Program& program, Storage& storage, Backend& backend, Collectives* ranks)
    : program_(program),
      storage_(storage),
      backend_(backend),
      ranks_(program, storage, ranks),
      scalars_(program.find(step::role::kScalars)) {
  fill_rope_tables();
}

// table[pos] = cos[D/2] | sin[D/2] of pos * inv_freq, computed in double. Filled once: the table is
// persistent and read-only.
void Walker::fill_rope_tables() {
  const std::vector<double> inv_freq = rope_inv_freq(program_.model);
  const std::size_t half = inv_freq.size();
  std::vector<bool> filled(program_.buffers.size());
  for (const step::Op& op : program_.ops) {
    if (op.kind != OpKind::kRope) continue;
    const step::BufferId id = op[step::operand::rope::kTable];
    if (filled[id]) continue;
    filled[id] = true;
    float* table = storage_.f32(id);
    for (std::uint64_t pos = 0; pos < program_[id].rows; ++pos)
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(pos) * inv_freq[i];
        table[pos * 2 * half + i] = static_cast<float>(std::cos(angle));
        table[pos * 2 * half + half + i] = static_cast<float>(std::sin(angle));
      }
  }
}

// Returns false if the host cancelled. Consecutive operations of one kind run as one call if the backend
// wants that (an update of all tensors in one parallel loop). enter() and leave() tell a test storage which
// buffers are live.
bool Walker::run(step::Section section, const std::function<bool()>& cancelled, OperationTimer* timer) {
  const std::vector<step::Op>& ops = program_.ops;
  assert(section.begin <= section.end && section.end <= ops.size());
  for (std::uint32_t i = section.begin, end = i; i < section.end; i = end) {
    if (cancelled && cancelled()) return false;
    end = i + 1;
    if (skips(ops[i])) continue;
    const bool together = backend_.together(ops[i].kind);
    while (together && end < section.end && ops[end].kind == ops[i].kind) ++end;
    for (std::uint32_t o = i; o < end; ++o) storage_.enter(o);
    if (timer) timer->enter(i);
    if (RankOperations::contains(ops[i].kind))
      ranks_.run(ops[i]);
    else
      backend_.run({&ops[i], end - i}, step_);
    if (timer) timer->leave(end - i);
    for (std::uint32_t o = i; o < end; ++o) storage_.leave(o);
  }
  return true;
}

/// Gradients travel once per update, when the last micro-batch has completed them.
bool Walker::skips(const step::Op& op) const {
  return (op.flags & step::kLastMicro) && step_.micro + 1 < program_.run.accumulate;
}

/// The loss is a mean over all counted targets of the step, so the scale is the same in every micro-batch and
/// gradients of micro-batches simply add up.
StepState Walker::state_of_micro(const UpdateInput& in, std::uint64_t micro, std::uint64_t counted) const {
  const std::uint64_t tokens = program_.run.tokens_per_micro_batch();
  return {in.tokens + micro * tokens,
          in.targets + micro * tokens,
          in.starts ? in.starts + micro * tokens : nullptr,
          tokens,
          micro == 0,
          static_cast<float>(1.0 / static_cast<double>(counted)),
          in.lr,
          in.step_index,
          0,
          micro};
}

Outcome Walker::update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out) {
  const step::Program& p = program_;
  const std::uint64_t own = counted_targets(in.targets, p.run.tokens_per_step());
  out.counted = own;
  scalars()[step::kLossSum] = 0.0;
  scalars()[step::kNorm2] = 0.0;
  if (timer_) timer_->begin_update();
  for (std::uint64_t i = 0; i < p.run.accumulate; ++i) {
    step::Section micro = p.section(SectionKind::kMicro);
    step_ = state_of_micro(in, i, out.counted);
    if (ranks_.present()) {
      // Counted targets and cancellation of all ranks; no rank stops alone, as others would wait for it.
      assert(p.ops[micro.begin].kind == OpKind::kSumScalars);
      scalars()[step::kCounted] = static_cast<double>(own);
      scalars()[step::kCancelled] = cancelled && cancelled() ? 1.0 : 0.0;
      run({SectionKind::kMicro, micro.begin, micro.begin + 1}, nullptr, timer_);
      if (scalars()[step::kCancelled] > 0.0) return Outcome::kCancelled;
      // TP ranks have the same sequences.
      out.counted = static_cast<std::uint64_t>(scalars()[step::kCounted]) / p.run.parallel.tensor;
      step_ = state_of_micro(in, i, out.counted);
      ++micro.begin;
    }
    if (!run(micro, ranks_.present() ? nullptr : cancelled, timer_)) return Outcome::kCancelled;
  }

  // The update section computes the norm of all gradients before it changes any weight; the check is in
  // between.
  const step::Section section = p.section(SectionKind::kUpdate);
  step::Section norms = section, weights = section;
  const OpKind last = ranks_.present() ? OpKind::kSumScalars : OpKind::kGradSquares;
  while (norms.end > norms.begin && p.ops[norms.end - 1].kind != last) --norms.end;
  weights.begin = norms.end;
  assert(norms.begin < norms.end && weights.begin < weights.end);
  run(norms, nullptr, timer_);
  out.loss = scalars()[step::kLossSum] /
             static_cast<double>(out.counted * (ranks_.present() ? p.run.parallel.tensor : 1));
  out.grad_norm = std::sqrt(scalars()[step::kNorm2]);
  if (!std::isfinite(out.loss) || !std::isfinite(out.grad_norm)) {
    out.cause = find_nonfinite(in, cancelled, out.counted);
    return Outcome::kNonFinite;
  }
  // torch.nn.utils.clip_grad_norm_: factor = min(1, max_norm / (norm + 1e-6)).
  const double clip = p.run.clip_norm;
  scalars()[step::kClipFactor] = clip > 0.0 ? std::min(1.0, clip / (out.grad_norm + 1e-6)) : 1.0;
  // An exception inside leaves it true: the weights are then neither old nor new.
  half_updated_ = true;
  run(weights, nullptr, timer_);
  half_updated_ = false;
  if (timer_) timer_->end_update();
  return Outcome::kDone;
}

// Repeats the micro-batches of a failed update, which has changed no weight, and looks at the outputs of each
// operation: those of all earlier operations were finite. One operation per call: the backend may fuse
// operations only where that changes no result.
std::string Walker::find_nonfinite(const UpdateInput& in, const std::function<bool()>& cancelled,
                                   std::uint64_t counted) {
  const step::Section section = program_.section(SectionKind::kMicro);
  scalars()[step::kLossSum] = 0.0;
  scalars()[step::kNorm2] = 0.0;
  // The ranks look for it alone, and need nothing of what they would send but the weights of ZeRO 3 and the
  // sums of tensor parallelism. Those come from all ranks, so that none of them may end before the others.
  const bool together = ranks_.present() && divides_weights(program_.run.parallel);
  std::string found;
  for (std::uint64_t micro = 0; micro < program_.run.accumulate; ++micro) {
    step_ = state_of_micro(in, micro, counted);
    for (std::uint32_t i = section.begin; i < section.end; ++i) {
      if (!together && cancelled && cancelled()) return {};
      const step::Op& op = program_.ops[i];
      if (RankOperations::contains(op.kind)) {
        if (!together || !is_needed_to_compute(program_, op)) continue;
        storage_.enter(i), ranks_.run(op), storage_.leave(i);
        continue;
      }
      if (!found.empty()) continue;
      storage_.enter(i);
      backend_.run({&op, 1}, step_);
      step::BufferId bad = step::kNoBuffer;
      for (step::BufferId b : op.outputs())
        if (const step::Buffer& o = program_[b]; bad == step::kNoBuffer) {
          const std::uint64_t elements = o.rows * o.cols;
          if (first_nonfinite(o.dtype, storage_.at(b), elements) < elements) bad = b;
        }
      storage_.leave(i);
      if (bad == step::kNoBuffer) continue;
      found = describe_nonfinite(program_, op, bad, micro);
      if (!together) return found;
    }
  }
  if (!found.empty()) return found;
  return ranks_.present() ? kOnAnotherRank : describe_not_repeated();
}

Outcome Walker::evaluate(const std::int32_t* tokens, const std::int32_t* targets, const std::int32_t* starts,
                         std::uint32_t sequences, const std::function<bool()>& cancelled, UpdateResult& out) {
  const step::Program& p = program_;
  const std::uint64_t rows = std::uint64_t{sequences} * p.run.seq_len;
  out.counted = counted_targets(targets, rows);
  scalars()[step::kEvalLossSum] = 0.0;
  // loss scale 0: no gradient is computed.
  step_ = {tokens, targets, starts, rows, true, 0.0f, 0.0, 0, 0};
  // One rank that is cancelled would leave the evaluation alone.
  if (!run(p.section(SectionKind::kEval), ranks_.present() ? nullptr : cancelled)) return Outcome::kCancelled;
  out.loss = out.counted ? scalars()[step::kEvalLossSum] / static_cast<double>(out.counted) : 0.0;
  return std::isfinite(out.loss) ? Outcome::kDone : Outcome::kNonFinite;
}

void Walker::copy_logits(step::BufferId from, float* to) {
  const step::Buffer& b = program_[from];
  if (b.dtype == DType::kF32) {
    std::memcpy(to, storage_.f32(from), b.bytes());
    return;
  }
  assert(b.dtype == DType::kBF16);
  const auto* values = static_cast<const std::uint16_t*>(storage_.at(from));
  std::transform(values, values + b.rows * b.cols, to, f32_from_bf16);
}

void Walker::next_logits(std::int32_t token, std::uint32_t position, float* logits) {
  assert(logits != nullptr);
  const step::Program& p = program_;
  const step::Section s = p.section(SectionKind::kGenerate);
  step_ = {&token, nullptr, nullptr, 1, true, 0.0f, 0.0, 0, position};
  step::BufferId from = step::kNoBuffer;
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    const step::Op& op = p.ops[i];
    storage_.enter(i);
    if (RankOperations::contains(op.kind))
      ranks_.run(op);
    else
      backend_.run({&op, 1}, step_);
    if (op.kind == OpKind::kHeadLogits) from = op[step::operand::head_logits::kLogits];
    // The last operation computes the logits, or waits for those of other ranks.
    if (i + 1 == s.end) copy_logits(from, logits);
    storage_.leave(i);
  }
  step_ = {};
}

}  // namespace trainhost::executor
