// The update section: the global norm over all gradients, then the optimizer, one operation per
// trained parameter.
// Between the two the executor computes the clip factor from the norm; every optimizer operation reads it.
#include "core/step/builder.hpp"

namespace trainhost::step {

void build_update(Builder& b) {
  b.begin(SectionKind::kUpdate, kUpdate, kOriginal, 0);
  const BufferId partials = b.scratch(role::kSquarePartials, -1, b.p.traits.slots, 1, DType::kF64);
  for (const Param& q : b.p.params)
    if (q.grad != kNoBuffer)
      b.op(OpKind::kGradSquares, b.p[q.grad].layer, {q.grad, b.scalars, partials}, {b.scalars});
  for (const Param& q : b.p.params) {
    if (q.grad == kNoBuffer) continue;  // frozen
    const std::int32_t l = b.p[q.grad].layer;
    const std::uint32_t flags = q.decay ? kDecay : 0u;
    switch (b.p.run.optimizer) {
      case Optimizer::kAdamW:
        b.op(OpKind::kAdamW, l, {q.grad, q.weight, q.m, q.v, b.scalars, q.master},
             {q.weight, q.m, q.v, q.master}, flags);
        break;
      case Optimizer::kSgd:
        b.op(OpKind::kSgd, l, {q.grad, q.weight, b.scalars, q.master}, {q.weight, q.master}, flags);
        break;
      case Optimizer::kSgdMomentum:
      case Optimizer::kLion:
        b.op(b.p.run.optimizer == Optimizer::kLion ? OpKind::kLion : OpKind::kSgdMomentum, l,
             {q.grad, q.weight, q.m, b.scalars, q.master}, {q.weight, q.m, q.master}, flags);
        break;
      default:
        break;  // rejected by planned_only_setting() before a program is built
    }
  }
  b.end();
}

}  // namespace trainhost::step
