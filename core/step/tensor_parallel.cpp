// Tensor parallelism in a step program, which is that of the rank's part of the model
// (core/model/tensor_parts.hpp): where the parts of the TP ranks come together. Every rank has a part of each
// sum over heads, over the inner layer of the MLP and over the vocabulary:
//
//   forward   embedding; outputs of o and down: the residual and the bias are added by the first rank
//   head      maximum, sum of exponentials and logit of the target of every token: all-gather, from which
//   each rank
//             computes the same loss; logits of a generated token
//   backward  gradient of the hidden states; of the inputs of q, k, v and of gate, up: travels while the
//   gradient of
//             the weight is computed
//   update    gradients of the norms of q and k, which each rank has of its heads
//
// Every other value is the same on all TP ranks, to the bit.
#include "core/base/checked.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/step/builder.hpp"

namespace trainhost::step {

void start_tensor_sum(Builder& b, std::int32_t layer, BufferId part) {
  if (b.has_tensor_ranks())
    b.op(OpKind::kAllReduce, layer, {part, b.collective_scratch}, {part}, kAmongTensorRanks);
}

void wait_for_tensor_ranks(Builder& b, std::int32_t layer, BufferId buffer) {
  if (b.has_tensor_ranks()) b.op(OpKind::kWait, layer, {buffer}, {buffer}, kAmongTensorRanks);
}

void sum_over_tensor_ranks(Builder& b, std::int32_t layer, BufferId part) {
  start_tensor_sum(b, layer, part), wait_for_tensor_ranks(b, layer, part);
}

void gather_over_tensor_ranks(Builder& b, BufferId buffer) {
  if (!b.has_tensor_ranks()) return;
  b.op(OpKind::kAllGather, -1, {buffer, b.collective_scratch, kNoBuffer}, {buffer}, kAmongTensorRanks);
  wait_for_tensor_ranks(b, -1, buffer);
}

BufferId head_stats(Builder& b, BufferId hf, BufferId logits) {
  if (!b.has_tensor_ranks()) return kNoBuffer;
  const BufferId stats =
      b.add(role::kHeadStats, -1, Component::kCommunication, checked_mul(b.rows, b.p.run.parallel.tensor), 3);
  b.op(OpKind::kHeadStats, -1, {hf, b.weights.head.w, b.targets, logits}, {stats});
  gather_over_tensor_ranks(b, stats);
  return stats;
}

void sum_gradients_of_head_norms(Builder& b) {
  if (!b.has_tensor_ranks()) return;
  const auto of_heads = [&](const Param& q) {
    const TensorRole r = b.p.tensor_infos[q.slices.front().tensor].role;
    return q.grad != kNoBuffer && (r == TensorRole::kQNorm || r == TensorRole::kKNorm);
  };
  for (const Param& q : b.p.params)
    if (of_heads(q)) start_tensor_sum(b, b.p[q.grad].layer, q.grad);
  for (const Param& q : b.p.params)
    if (of_heads(q)) wait_for_tensor_ranks(b, b.p[q.grad].layer, q.grad);
}

bool counts_in_norm(const Program& p, const Param& q) {
  return p.run.parallel.tensor_rank <= 1 ||
         division_of(p.tensor_infos[q.slices.front().tensor].role) != Division::kNone;
}

}  // namespace trainhost::step
