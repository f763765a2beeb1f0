// Slots of operations that one piece of code serves although their slot numbers differ: the updates of all
// optimizers, and the operations of the head. The slots themselves, with shapes and meanings, are in
// operands.hpp; code that handles a single kind uses those.
#pragma once
#include <initializer_list>

#include "core/step/operands.hpp"

namespace trainhost::step::operand {

struct SlotOfKind {
  OpKind kind;
  In slot;
};

/// The slot that is listed for the kind; `otherwise` for kinds that are not listed.
constexpr In slot_of(OpKind kind, std::initializer_list<SlotOfKind> slots, In otherwise) {
  for (const SlotOfKind& s : slots)
    if (s.kind == kind) return s.slot;
  return otherwise;
}

/// Updates of parameters, and the operations of Adafactor and Muon that go before them among ranks.
namespace optimizer {
inline constexpr In kGrad{0};    // of every kind
inline constexpr In kWeight{1};  // of every kind that has the weight
inline constexpr In kM{2};       // not of kSgd and kAdafactor
constexpr In scalars(OpKind kind) {
  return slot_of(kind,
                 {{OpKind::kAdamW, adamw::kScalars},
                  {OpKind::kAdamW8bit, adamw::kScalars},
                  {OpKind::kSgd, sgd::kScalars},
                  {OpKind::kAdafactor, adafactor::kScalars},
                  {OpKind::kAdafactorSums, adafactor_sums::kScalars},
                  {OpKind::kAdafactorChange, adafactor_change::kScalars},
                  {OpKind::kMuon, muon::kScalars},
                  {OpKind::kMuonDirection, muon_direction::kScalars}},
                 sgd_momentum::kScalars);
}
/// The f32 copy of a weight that is stored in bf16; absent in f32 runs.
constexpr In master(OpKind kind) {
  return slot_of(kind,
                 {{OpKind::kAdamW, adamw::kMaster},
                  {OpKind::kAdamW8bit, adamw::kMaster},
                  {OpKind::kSgd, sgd::kMaster},
                  {OpKind::kAdafactor, adafactor::kMaster},
                  {OpKind::kMuon, muon::kMaster}},
                 sgd_momentum::kMaster);
}
}  // namespace optimizer

/// Operations of the head: kHeadLoss, kHeadEval, kHeadStats, kHeadBwd and kHeadLogits. hf, head and targets
/// are in the same slots of all that have them; a selector is asked only about kinds that have its operand.
namespace head {
using head_loss::kHf, head_loss::kHead, head_loss::kTargets;
constexpr In logits(OpKind kind) {
  return kind == OpKind::kHeadLoss ? head_loss::kLogits : head_eval::kLogits;
}
constexpr In scalars(OpKind kind) {
  return kind == OpKind::kHeadLoss ? head_loss::kScalars : head_eval::kScalars;
}
constexpr In losses(OpKind kind) {
  return kind == OpKind::kHeadLoss ? head_loss::kLosses : head_eval::kLosses;
}
constexpr In stats(OpKind kind) { return kind == OpKind::kHeadLoss ? head_loss::kStats : head_eval::kStats; }
/// hf A^T of the adapter of the head, and its B; absent without one.
constexpr In u(OpKind kind) {
  return slot_of(kind,
                 {{OpKind::kHeadLoss, head_loss::kU},
                  {OpKind::kHeadEval, head_eval::kU},
                  {OpKind::kHeadBwd, head_bwd::kU},
                  {OpKind::kHeadStats, head_stats::kU}},
                 head_logits::kU);
}
constexpr In b(OpKind kind) {
  return slot_of(kind,
                 {{OpKind::kHeadLoss, head_loss::kB},
                  {OpKind::kHeadEval, head_eval::kB},
                  {OpKind::kHeadBwd, head_bwd::kB},
                  {OpKind::kHeadStats, head_stats::kB}},
                 head_logits::kB);
}
constexpr In grad_b(OpKind kind) { return kind == OpKind::kHeadLoss ? head_loss::kGradB : head_bwd::kGradB; }
/// The factors of DoRA and what they multiply; absent without. kHeadEval scales its logits in place.
constexpr In scale(OpKind kind) {
  return slot_of(kind,
                 {{OpKind::kHeadLoss, head_loss::kScale},
                  {OpKind::kHeadEval, head_eval::kScale},
                  {OpKind::kHeadBwd, head_bwd::kScale},
                  {OpKind::kHeadStats, head_stats::kScale}},
                 head_logits::kScale);
}
constexpr In unscaled(OpKind kind) {
  return slot_of(kind,
                 {{OpKind::kHeadLoss, head_loss::kUnscaled},
                  {OpKind::kHeadBwd, head_bwd::kUnscaled},
                  {OpKind::kHeadStats, head_stats::kUnscaled}},
                 head_logits::kUnscaled);
}
/// The input after dropout; absent without.
constexpr In dropped(OpKind kind) {
  return slot_of(kind,
                 {{OpKind::kHeadLoss, head_loss::kDropped},
                  {OpKind::kHeadBwd, head_bwd::kDropped},
                  {OpKind::kHeadStats, head_stats::kDropped}},
                 head_logits::kDropped);
}
constexpr In grad_magnitude(OpKind kind) {
  return kind == OpKind::kHeadLoss ? head_loss::kGradMagnitude : head_bwd::kGradMagnitude;
}
}  // namespace head

}  // namespace trainhost::step::operand
