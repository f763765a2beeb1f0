// The update section: the global norm over all gradients, then the optimizer, one operation per
// trained parameter.
// Between the two the executor computes the clip factor from the norm; every optimizer operation reads it.
#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"
#include "core/step/builder.hpp"
#include "core/step/scratch_sizes.hpp"
#include "core/step/state_layout.hpp"

namespace trainhost::step {

namespace {

/// False for frozen parameters, and under ZeRO for those of which this rank has no element.
bool is_updated(const Builder& b, const Param& q) {
  return q.grad != kNoBuffer && updated_elements(b.p, q.grad).count > 0;
}

OpKind op_kind(const Builder& b, const Param& q) {
  switch (optimizer_of(b.p.run.optimizer, b.p.tensor_infos[q.slices.front().tensor])) {
    case Optimizer::kAdamW:
    case Optimizer::kAdamW8bit:
      // A parameter has 8-bit moments if one of its tensors is large enough.
      return b.p[q.m].dtype == DType::kU8 ? OpKind::kAdamW8bit : OpKind::kAdamW;
    case Optimizer::kSgd:
      return OpKind::kSgd;
    case Optimizer::kSgdMomentum:
      return OpKind::kSgdMomentum;
    case Optimizer::kLion:
      return OpKind::kLion;
    case Optimizer::kAdafactor:
      return OpKind::kAdafactor;
    case Optimizer::kMuon:
      return OpKind::kMuon;
  }
  assert(false && "every optimizer has an operation");
  return OpKind::kCount_;
}

/// The scratch of all operations of Adafactor or Muon, which run one after the other: that of the largest
/// one. No buffer for other optimizers.
BufferId update_scratch(Builder& b) {
  std::uint64_t columns = 0, floats = 0;
  for (const Param& q : b.p.params) {
    if (!is_updated(b, q)) continue;
    columns = std::max(columns, b.p[q.grad].cols);
    if (op_kind(b, q) == OpKind::kMuon)
      for (std::size_t i = 0; i < q.slices.size(); ++i) {
        const MuonSlice s = muon_slice(b.p, q, i);
        floats = std::max(floats, muon_work_floats(s.rows, s.cols));
      }
  }
  if (floats > 0) return b.scratch(role::kMuonWork, -1, floats, 1);
  if (b.p.run.optimizer == Optimizer::kAdafactor)
    return b.scratch(role::kAdafactorSums, -1, b.p.traits.slots, checked_add(columns, 2), DType::kF64);
  return kNoBuffer;
}

/// Muon of a parameter that TP ranks divide: each computes the direction of its part, all of them put the
/// whole together, and each orthogonalises it and takes its part.
BufferId orthogonal_direction(Builder& b, const Param& q, BufferId scratch) {
  const Buffer& grad = b.p[q.grad];
  const std::int32_t l = grad.layer;
  const BufferId x = b.add(grad.role, l, Component::kCommunication,
                           checked_mul(b.p.run.parallel.tensor, grad.rows), grad.cols);
  b.p.buffers[x].copy = kDirection;
  b.op(OpKind::kMuonDirection, l, {q.grad, q.m, b.scalars}, {q.m, x});
  gather_over_tensor_ranks(b, x);
  b.op(OpKind::kMuonOrthogonalise, l, {x, scratch}, {x});
  return x;
}

/// Adafactor of a parameter that TP ranks divide: sums over the ranks, of squared gradients and, with the
/// means that follow from them, of squared changes. None of another parameter.
struct FactoredBuffers {
  BufferId sums = kNoBuffer, change = kNoBuffer;
};
FactoredBuffers add_up_factors(Builder& b, const Param& q, BufferId scratch) {
  if (!is_divided_among_tensor_ranks(b.p, q)) return {};
  const Buffer grad = b.p[q.grad];
  const std::int32_t l = grad.layer;
  const FactoredSlice s = factored_slice(b.p, q, 0);  // tensors of one parameter are divided alike
  const auto add = [&](std::uint32_t copy, std::uint64_t columns) {
    const BufferId x = b.add(grad.role, l, Component::kCommunication, q.slices.size(), columns);
    b.p.buffers[x].copy = copy;
    return x;
  };
  // Where the ranks divide columns the number of rows of a tensor, which is alone in its parameter.
  const FactoredBuffers out{add(kFactoredSums, checked_add(s.exchanged(), 2)), add(kFactoredChange, 1)};
  const BufferId own = s.by_columns ? q.v : q.m, other = s.by_columns ? q.m : q.v;
  b.op(OpKind::kAdafactorSums, l, {q.grad, q.weight, own, b.scalars, scratch, q.master}, {own, out.sums});
  sum_over_tensor_ranks(b, l, out.sums);
  b.op(OpKind::kAdafactorChange, l, {q.grad, own, other, out.sums, b.scalars, scratch}, {other, out.change});
  sum_over_tensor_ranks(b, l, out.change);
  return out;
}

void update(Builder& b, const Param& q, BufferId scratch) {
  const std::int32_t l = b.p[q.grad].layer;
  const std::uint32_t flags = q.decay ? kDecay : 0u;
  const OpKind kind = op_kind(b, q);
  switch (kind) {
    case OpKind::kAdamW:
    case OpKind::kAdamW8bit:
      return b.op(kind, l, {q.grad, q.weight, q.m, q.v, b.scalars, q.master}, {q.weight, q.m, q.v, q.master},
                  flags);
    case OpKind::kSgd:
      return b.op(kind, l, {q.grad, q.weight, b.scalars, q.master}, {q.weight, q.master}, flags);
    case OpKind::kSgdMomentum:
    case OpKind::kLion:
      return b.op(kind, l, {q.grad, q.weight, q.m, b.scalars, q.master}, {q.weight, q.m, q.master}, flags);
    case OpKind::kAdafactor: {
      const FactoredBuffers of_ranks = add_up_factors(b, q, scratch);
      return b.op(kind, l,
                  {q.grad, q.weight, q.m, q.v, b.scalars, scratch, q.master, of_ranks.sums, of_ranks.change},
                  {q.weight, q.m, q.v, q.master}, flags);
    }
    case OpKind::kMuon: {
      const bool divided = is_divided_among_tensor_ranks(b.p, q);
      const BufferId direction = divided ? orthogonal_direction(b, q, scratch) : kNoBuffer;
      return b.op(kind, l,
                  {q.grad, q.weight, q.m, b.scalars, divided ? kNoBuffer : scratch, q.master, direction},
                  {q.weight, q.m, q.master}, flags);
    }
    default:
      assert(false && "not an optimizer");
  }
}

}  // namespace

void build_update(Builder& b) {
  b.begin(SectionKind::kUpdate, kUpdate, kOriginal, 0);
  wait_for_gradients(b);
  sum_gradients_of_whole_tensors(b);
  const BufferId partials = b.scratch(role::kSquarePartials, -1, b.p.traits.slots, 1, DType::kF64);
  // Of several ranks each computes the part of its shard, which may be empty.
  for (const Param& q : b.p.params)
    if (q.grad != kNoBuffer && shard_of(b.p, q.grad).count > 0 && counts_in_norm(b.p, q))
      b.op(OpKind::kGradSquares, b.p[q.grad].layer, {q.grad, b.scalars, partials}, {b.scalars});
  sum_scalars_of_ranks(b);
  const BufferId scratch = update_scratch(b);
  // Operations of one kind one after the other, as trainers combine them: AdamW, which updates what Muon and
  // 8-bit AdamW leave out, comes last.
  for (const bool rest : {false, true})
    for (const Param& q : b.p.params)
      if (is_updated(b, q) && (op_kind(b, q) == OpKind::kAdamW) == rest) update(b, q, scratch);
  gather_weights(b);
  b.end();
}

}  // namespace trainhost::step
