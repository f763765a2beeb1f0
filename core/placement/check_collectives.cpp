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
  if (o_->ins <= all_gather::kShard.slot) intact(b);  // else it is written here
  if (!has_tensor_ranks()) f_.at(i_, "is a collective among TP ranks in a run without them");
  if (p_[b].persistent) {
    params_.sum_over_tensor_ranks(i_, b);
  } else {
    if (o_->kind == OpKind::kAllGather && o_->ins > all_gather::kShard.slot) return gather_rows(b);
    Value& v = contents(b);
    if (v.lacks != Lacks::kTensorRanks) f_.at(i_, "adds up " + text(v) + ", of which every rank has all");
    const bool pieces = v.quantity == Quantity::kHeadStats || v.quantity == Quantity::kLogits ||
                        v.quantity == Quantity::kDirection;
    const bool of_tokens = v.quantity != Quantity::kDoraSquares;
    const OpKind wanted = pieces                        ? OpKind::kAllGather
                          : divides_rows() && of_tokens ? OpKind::kReduceScatter
                                                        : OpKind::kAllReduce;
    if (o_->kind != wanted) f_.at(i_, "is not the collective for " + text(v));
    v.own_rows = wanted == OpKind::kReduceScatter;
    const bool has_residual = v.quantity == Quantity::kResidual && v.at > 0 && !v.gradient;
    v.lacks = v.own_rows && has_residual ? Lacks::kResidual : Lacks::kNothing;
  }
  write(b);
  in_flight_[b] = true;
}

/// Rows between the products, of which each TP rank has its own.
void ValueRun::gather_rows(BufferId all) {
  const BufferId rows = in(all_gather::kShard);
  Value v = contents(rows);
  if (!v.own_rows || p_[rows].persistent || v.lacks != Lacks::kNothing)
    f_.at(i_, "gathers " + p_[rows].name() + ", which has not this rank's rows of a value");
  intact(rows);
  v.own_rows = false;
  contents(all) = v;
  write(all);
  in_flight_[all] = true;
}

void ValueRun::take_rows() {
  Value v = contents(in(take_rows::kSum));
  if (!v.own_rows) f_.at(i_, "takes rows of " + text(v) + ", which is no sum over the TP ranks");
  intact(in(take_rows::kSum));
  const bool residual = v.lacks == Lacks::kResidual;
  if ((in(take_rows::kResidual) != kNoBuffer) != residual)
    f_.at(i_, residual ? "omits the residual" : "adds a residual");
  else if (residual)
    need(take_rows::kResidual, own(value(Quantity::kResidual, v.at - 1)));
  v.lacks = Lacks::kNothing;
  give(take_rows::kY, v);
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
