// The collective operations among data-parallel ranks: where each one starts and where it is waited for;
// those among tensor-parallel ranks are in tensor_parallel.cpp. Gradients are reduced while the backward pass
// goes on: a layer's when all of them are complete, on the last micro-batch of an update. The update section
// waits for them. With ZeRO each rank then updates its shard of every parameter, and gathers the weights that
// the others have updated. ZeRO 2 and 3 move these operations into the passes over the layers:
// zero_stages.cpp.
#include <algorithm>
#include <cassert>

#include "core/step/builder.hpp"

namespace trainhost::step {

void sum_scalars_of_ranks(Builder& b) {
  if (b.has_ranks()) b.op(OpKind::kSumScalars, -1, {b.scalars, b.collective_scratch}, {b.scalars});
}

void reduce_gradient(Builder& b, BufferId grad) {
  if (!b.has_data_ranks() || grad == kNoBuffer || b.p.run.parallel.zero >= 2) return;
  const OpKind kind = b.p.run.parallel.zero == 0 ? OpKind::kAllReduce : OpKind::kReduceScatter;
  b.op(kind, b.p[grad].layer, {grad, b.collective_scratch}, {grad}, kLastMicro);
}

void reduce_gradients(Builder& b, std::int32_t layer) {
  assert(layer >= 0 && "the parameters outside the layers are complete at different times");
  for (const Param& q : b.p.params)
    if (q.grad != kNoBuffer && b.p[q.grad].layer == layer) reduce_gradient(b, q.grad);
}

void wait_for_gradients(Builder& b) {
  if (!b.has_data_ranks() || b.p.run.parallel.zero >= 2) return;
  for (const Param& q : b.p.params)
    if (q.grad != kNoBuffer) b.op(OpKind::kWait, b.p[q.grad].layer, {q.grad}, {q.grad});
}

void gather_weights(Builder& b) {
  if (!b.has_data_ranks() || b.p.run.parallel.zero == 0 || b.p.run.parallel.zero == 3) return;
  // All of them start before the first wait, so that short ones can travel together.
  for (const Param& q : b.p.params)
    if (q.grad != kNoBuffer)
      b.op(OpKind::kAllGather, b.p[q.weight].layer, {q.weight, b.collective_scratch, kNoBuffer}, {q.weight});
  for (const Param& q : b.p.params)
    if (q.grad != kNoBuffer) b.op(OpKind::kWait, b.p[q.weight].layer, {q.weight}, {q.weight});
}

}  // namespace trainhost::step
