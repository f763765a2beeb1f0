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
//   update    gradients of the norms of q and k, which each rank has of its heads; of the whole factors of
//             adapters
//
// Adapters need no sum of their own. Of a product that divides its outputs every rank computes u = x A^T, and
// adds du A of its outputs to its part of the gradient of x; of one that divides its inputs u is a part of a
// sum, and u B^T is added to the part of the output.
//
// Every other value is the same on all TP ranks, to the bit.
//
// With sequence parallelism (parallel.sequence) a rank has its rows alone of what is between the products: of
// the residual stream, of the outputs of norms, and of their gradients. In a micro-batch, sums of activations
// are reduce-scatters, and each rank takes its rows and adds the residual to them (kTakeRows); an all-gather
// of rows precedes the products that divide their outputs, in the backward pass those that divide their
// inputs. What is gathered is not kept: recompute.cpp gathers it again. The gradients of all norms are sums
// over the TP ranks. Evaluation and generation work as without.
#include "core/base/checked.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/step/builder.hpp"

namespace trainhost::step {

void start_tensor_sum(Builder& b, std::int32_t layer, BufferId part) {
  if (b.has_tensor_ranks())
    b.op(b.divides_rows() ? OpKind::kReduceScatter : OpKind::kAllReduce, layer, {part, b.collective_scratch},
         {part}, kAmongTensorRanks);
}

void wait_for_tensor_ranks(Builder& b, std::int32_t layer, BufferId buffer) {
  if (b.has_tensor_ranks()) b.op(OpKind::kWait, layer, {buffer}, {buffer}, kAmongTensorRanks);
}

void sum_over_tensor_ranks(Builder& b, std::int32_t layer, BufferId part) {
  if (!b.has_tensor_ranks()) return;
  b.op(OpKind::kAllReduce, layer, {part, b.collective_scratch}, {part}, kAmongTensorRanks);
  wait_for_tensor_ranks(b, layer, part);
}

BufferId add_all_rows(Builder& b, const char* role, std::int32_t layer) {
  return b.add(role, layer, Component::kCommunication, b.rows, b.p.model.hidden, b.storage_type());
}

BufferId gather_rows(Builder& b, std::int32_t layer, BufferId own, const char* role) {
  if (!b.divides_rows()) return own;
  const BufferId all = add_all_rows(b, role, layer);
  b.op(OpKind::kAllGather, layer, {all, b.collective_scratch, own}, {all}, kAmongTensorRanks);
  wait_for_tensor_ranks(b, layer, all);
  return all;
}

void take_rows_of_sum(Builder& b, std::int32_t layer, BufferId sum, BufferId residual, BufferId own) {
  wait_for_tensor_ranks(b, layer, sum);
  b.op(OpKind::kTakeRows, layer, {sum, residual}, {own});
}

void gather_over_tensor_ranks(Builder& b, BufferId buffer) {
  if (!b.has_tensor_ranks()) return;
  b.op(OpKind::kAllGather, -1, {buffer, b.collective_scratch, kNoBuffer}, {buffer}, kAmongTensorRanks);
  wait_for_tensor_ranks(b, -1, buffer);
}

BufferId head_stats(Builder& b, const ForwardActs& f, BufferId logits, BufferId unscaled) {
  if (!b.has_tensor_ranks()) return kNoBuffer;
  const BufferId stats =
      b.add(role::kHeadStats, -1, Component::kCommunication, checked_mul(b.rows, b.p.run.parallel.tensor), 3);
  b.op(OpKind::kHeadStats, -1,
       {f.hf, b.weights.head.w, b.targets, logits, f.head_lora, b.weights.head_adapter.b.w, f.head_scale,
        f.head_dropped == kNoBuffer ? kNoBuffer : unscaled, f.head_dropped},
       {stats});
  gather_over_tensor_ranks(b, stats);
  return stats;
}

void sum_gradients_of_whole_tensors(Builder& b) {
  if (!b.has_tensor_ranks()) return;
  const auto has_part = [&](const Param& q) {
    return q.grad != kNoBuffer &&
           has_part_of_gradient(b.p.tensor_infos[q.slices.front().tensor], b.p.run.parallel);
  };
  for (const Param& q : b.p.params)
    if (has_part(q)) start_tensor_sum(b, b.p[q.grad].layer, q.grad);
  for (const Param& q : b.p.params)
    if (has_part(q)) wait_for_tensor_ranks(b, b.p[q.grad].layer, q.grad);
}

bool counts_in_norm(const Program& p, const Param& q) {
  return p.run.parallel.tensor_rank <= 1 ||
         division_of(p.tensor_infos[q.slices.front().tensor]) != Division::kNone;
}

}  // namespace trainhost::step
