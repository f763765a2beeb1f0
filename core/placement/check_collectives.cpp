// The rules of the checker for operations among ranks: what each collective operation must find, and which
// value it leaves on every rank. Those of one rank are in check_ops.cpp.
#include "core/placement/check_execution.hpp"
#include "core/step/operands.hpp"

namespace trainhost::placement {

using namespace operand;

/// A sum of gradients over the ranks, or the weights that the others have updated.
void ValueRun::collective() {
  const BufferId b = in(all_reduce::kBuffer);
  persistent(all_reduce::kScratch);
  if (o_->flags & kAmongTensorRanks) return among_tensor_ranks();
  if (o_->kind != OpKind::kAllGather || p_.run.parallel.zero != 3) intact(b);  // else it is written here
  if (p_.run.parallel.data == 1) f_.at(i_, "is a collective in a run of one rank");
  if (o_->kind == OpKind::kAllGather && o_->ins > all_gather::kShard.slot)
    gather_shards(b);
  else if (o_->kind == OpKind::kAllGather)
    params_.gather(i_, b);
  else if (o_->kind == OpKind::kReduceScatter && p_.run.parallel.zero >= 2)
    reduce_part(b);
  else
    params_.reduce(i_, b);
  write(b);
  in_flight_[b] = true;
}

/// Parts become the whole: a sum, or pieces side by side; or the gradients of a norm of heads, of which each
/// rank has its own.
void ValueRun::among_tensor_ranks() {
  const BufferId b = in(all_reduce::kBuffer);
  intact(b);
  if (!has_tensor_ranks()) f_.at(i_, "is a collective among TP ranks in a run without them");
  if (p_[b].persistent) {
    params_.sum_heads(i_, b);
  } else {
    Value& v = contents(b);
    if (v.lacks != Lacks::kTensorRanks) f_.at(i_, "adds up " + text(v) + ", of which every rank has all");
    const bool pieces = v.quantity == Quantity::kHeadStats || v.quantity == Quantity::kLogits;
    if (pieces != (o_->kind == OpKind::kAllGather)) f_.at(i_, "is not the collective for " + text(v));
    v.lacks = Lacks::kNothing;
  }
  write(b);
  in_flight_[b] = true;
}

/// A weight of which this rank has a shard, for one pass over its layer.
void ValueRun::gather_shards(BufferId whole) {
  const BufferId shard = in(all_gather::kShard);
  const std::uint32_t param = params_.param_of(shard, ParamPart::kWeight);
  intact(shard);
  if (param == UINT32_MAX) return f_.at(i_, "gathers " + p_[shard].name() + ", which is not a weight");
  if (p_[whole].persistent) return f_.at(i_, "gathers into " + p_[whole].name() + ", which is persistent");
  contents(whole) = value(Quantity::kWeightCopy, static_cast<std::int32_t>(param));
}

/// A gradient of one micro-batch, complete on this rank.
void ValueRun::reduce_part(BufferId whole) {
  const std::uint32_t param = params_.param_of(original(whole), ParamPart::kGrad);
  if (param == UINT32_MAX || p_[whole].persistent)
    return f_.at(i_, "reduces " + p_[whole].name() + ", which is not the gradient of a micro-batch");
  need_buffer(whole, value(Quantity::kGradPart, static_cast<std::int32_t>(param)));
  if (parts_[whole] != params_.writes_wanted(param))
    f_.at(i_, "reduces " + p_[whole].name() + " before it is complete");
  contents(whole) = value(Quantity::kGradSum, static_cast<std::int32_t>(param));
}

void ValueRun::wait() {
  const BufferId b = in(operand::wait::kBuffer);
  if (!in_flight_[b]) f_.at(i_, "waits for a collective that was not started on " + p_[b].name());
  intact(b), in_flight_[b] = false;
}

void ValueRun::sum_scalars() {
  persistent(operand::sum_scalars::kScalars), persistent(operand::sum_scalars::kScratch);
  params_.sum_scalars(i_, o_->phase == kUpdate);
}

}  // namespace trainhost::placement
