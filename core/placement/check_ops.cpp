// The rules of the checker: which quantity each operation must find in its inputs and which it writes. Layer
// and position of an operation follow from the tensors inside its weight, never from buffer names. Written
// from the mathematics of the layer, without using core/step/build_forward.cpp or build_backward.cpp, so that
// a mistake there cannot repeat itself here.
// Positions count half layers: residual 2l is the input of layer l, 2l + 1 the input of its MLP, 2L the input
// of the final norm. Quantities of one layer count whole layers.
#include "core/placement/check_execution.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"

namespace trainhost::placement {

using namespace operand;

/// y = norm(x), and 1/rms for the backward pass. The weight tells which norm it is.
void ValueRun::rms_norm() {
  const std::int32_t at = norm_at(in(rms_norm::kWeight));
  if (at < 0) return f_.at(i_, p_[in(rms_norm::kWeight)].name() + " is not the weight of a norm");
  need(rms_norm::kX, own(value(Quantity::kResidual, at)));
  weight(rms_norm::kWeight, params_.role(original(in(rms_norm::kWeight))),
         params_.layer(original(in(rms_norm::kWeight))));
  give(rms_norm::kY, own(value(Quantity::kNormed, at)));
  give(rms_norm::kRstd, own(value(Quantity::kRstd, at)));
}

/// y = x W^T (+ bias) (+ residual). The role of the weight determines which product of a layer it is, and so
/// what x, y and the residual must be.
void ValueRun::forward_linear() {
  TensorRole r = params_.role(original(in(linear::kWeight)));
  std::int32_t l = params_.layer(original(in(linear::kWeight)));
  Product q;
  if (has_a_of_adapter(linear::kWeight)) {
    a_of_adapter(linear::kWeight, q, r, l);
    need(linear::kX, lora_input(r, l, q.x));
    if (in(linear::kBias) != kNoBuffer || in(linear::kResidual) != kNoBuffer)
      f_.at(i_, "adds a bias or a residual to the inner product of an adapter");
    return give(linear::kY, inner(q, r, l));
  }
  if (l < 0 || !product(r, l, q))
    return f_.at(i_, p_[in(linear::kWeight)].name() + " is not the weight of a linear layer");
  // With DoRA, bias and residual are added with the magnitudes. With dropout there are two products, of the
  // input and of the dropped input.
  const bool of_dropped = drops() && contents(in(linear::kX)).quantity == Quantity::kDropped;
  if (has_magnitudes(r, l) && (!drops() || of_dropped)) {
    need(linear::kX, lora_input(r, l, q.x));
    weight(linear::kWeight, r, l);
    if (in(linear::kBias) != kNoBuffer || in(linear::kResidual) != kNoBuffer)
      f_.at(i_, "adds a bias or a residual before the magnitudes");
    return give(linear::kY, without_adapters(of_product(Quantity::kUnscaled, r, l)));
  }
  need(linear::kX, q.x);
  weight(linear::kWeight, r, l);
  // TP ranks divide the inputs of the products with a residual; one of them adds it, and the bias. With
  // sequence parallelism each adds the residual to its rows of the sum.
  const bool adds = !q.has_residual || adds_to_sum(), bias = biased(q.bias) && adds,
             residual = q.has_residual && adds && !divides_rows();
  if ((in(linear::kBias) != kNoBuffer) != bias)
    f_.at(i_, bias ? "omits the bias" : "has a bias");
  else if (bias)
    weight(linear::kBias, q.bias, l);
  if ((in(linear::kResidual) != kNoBuffer) != residual)
    f_.at(i_, residual ? "omits the residual" : "adds a residual");
  else if (residual)
    need(linear::kResidual, q.residual);
  if (adapters_of(r, l).count) return give(linear::kY, without_adapters(q.y));
  give(linear::kY, of_inputs(q, q.y));
}

/// The matrix that the next product uses. weight() accepts it as the parameter, since it is a copy.
void ValueRun::dequantize() {
  const std::uint32_t q = params_.param_of(original(in(dequantize::kQuantized)), ParamPart::kWeight);
  if (q == UINT32_MAX || p_[in(dequantize::kQuantized)].dtype != DType::kU8)
    return f_.at(i_, p_[in(dequantize::kQuantized)].name() + " is not a quantized weight");
  intact(in(dequantize::kQuantized));
  give(dequantize::kMatrix, value(Quantity::kWeightCopy, static_cast<std::int32_t>(q)));
}

/// dx = dy W. Needs no x, so it can run when x was dropped by a recompute policy.
void ValueRun::linear_dx() {
  TensorRole r = params_.role(original(in(linear_dx::kWeight)));
  std::int32_t l = params_.layer(original(in(linear_dx::kWeight)));
  Product q;
  if (has_a_of_adapter(linear_dx::kWeight)) {
    a_of_adapter(linear_dx::kWeight, q, r, l);
    need(linear_dx::kDy, d_inner(q, r, l));
    if (has_magnitudes(r, l)) f_.at(i_, "omits the product of the dropped input");
    return give(linear_dx::kDx, of_outputs(q, grad(of_product(Quantity::kDropped, r, l))));
  }
  if (l < 0 || !product(r, l, q))
    return f_.at(i_, p_[in(linear_dx::kWeight)].name() + " is not the weight of a linear layer");
  if (has_magnitudes(r, l) && drops() && contents(in(linear_dx::kDy)).quantity == Quantity::kUnscaled) {
    need(linear_dx::kDy, grad(without_adapters(of_product(Quantity::kUnscaled, r, l))));
    weight(linear_dx::kWeight, r, l);
    return give(linear_dx::kDx, grad(without_adapters(of_product(Quantity::kDropped, r, l))));
  }
  need(linear_dx::kDy, drops() ? grad(q.y) : grad(sum_with_adapters(r, l, q)));
  weight(linear_dx::kWeight, r, l);
  if (adapters_of(r, l).count) return give(linear_dx::kDx, without_adapters(grad(q.x)));
  give(linear_dx::kDx, of_outputs(q, grad(q.x)));
}

/// dW += dy^T x. x must be intact here: kept from the forward pass or recomputed.
void ValueRun::linear_dw() {
  const TensorRole r = params_.role(original(in(linear_dw::kGradWeight)));
  const std::int32_t l = params_.layer(original(in(linear_dw::kGradWeight)));
  Product q;
  if (params_.adapter_part(original(in(linear_dw::kGradWeight))) == AdapterPart::kA) {
    product(first_matrix(r), l, q);
    need(linear_dw::kDy, d_inner(q, r, l)), need(linear_dw::kX, lora_input(r, l, q.x));
    if (in(linear_dw::kGradBias) != kNoBuffer) f_.at(i_, "has a bias, which no adapter has");
    return contributes(linear_dw::kGradWeight, r, l, AdapterPart::kA);
  }
  const bool of_b = params_.adapter_part(original(in(linear_dw::kGradWeight))) == AdapterPart::kB;
  if (of_b && r == TensorRole::kEmbed && ties_adapter()) {  // of its transpose, which is A of the head
    product(TensorRole::kHead, -1, q);
    need(linear_dw::kDy, lora_input(TensorRole::kHead, -1, q.x));
    need(linear_dw::kX, d_inner(q, TensorRole::kHead, -1));
    if (in(linear_dw::kGradBias) != kNoBuffer) f_.at(i_, "has a bias, which no adapter has");
    return contributes(linear_dw::kGradWeight, TensorRole::kEmbed, -1, AdapterPart::kB);
  }
  if (l < 0 || !product(r, l, q))
    return f_.at(i_, p_[in(linear_dw::kGradWeight)].name() + " is not the gradient of a linear layer");
  need(linear_dw::kDy, grad(q.y));
  need(linear_dw::kX, q.x);
  contributes(linear_dw::kGradWeight, r, l);
  const bool bias = biased(q.bias) && is_trained_role(q.bias, l);
  if ((in(linear_dw::kGradBias) != kNoBuffer) != bias)
    f_.at(i_, bias ? "omits the bias" : "has a bias");
  else if (in(linear_dw::kGradBias) != kNoBuffer)
    contributes(linear_dw::kGradBias, q.bias, l);
  scratch(linear_dw::kPartials);
}

/// x_{j+1} = x_j + f(norm(x_j)), so d x_j = d x_{j+1} + the gradient through the norm.
void ValueRun::rms_norm_bwd() {
  const std::int32_t at = norm_at(in(rms_norm_bwd::kWeight)), last = 2 * layers_;
  if (at < 0) return f_.at(i_, p_[in(rms_norm_bwd::kWeight)].name() + " is not the weight of a norm");
  need(rms_norm_bwd::kDy, own(grad(value(Quantity::kNormed, at))));
  need(rms_norm_bwd::kX, own(value(Quantity::kResidual, at)));
  need(rms_norm_bwd::kRstd, own(value(Quantity::kRstd, at)));
  weight(rms_norm_bwd::kWeight, params_.role(original(in(rms_norm_bwd::kWeight))),
         params_.layer(original(in(rms_norm_bwd::kWeight))));
  if ((in(rms_norm_bwd::kDxIn) == kNoBuffer) != (at == last))
    f_.at(i_,
          at == last ? "adds to a residual gradient that does not exist yet" : "drops the residual gradient");
  else if (at != last)
    need(rms_norm_bwd::kDxIn, own(grad(value(Quantity::kResidual, at + 1))));
  scratch(rms_norm_bwd::kPartials);
  contributes_unless_frozen(rms_norm_bwd::kGradWeight, params_.role(original(in(rms_norm_bwd::kWeight))),
                            params_.layer(original(in(rms_norm_bwd::kWeight))));
  give(rms_norm_bwd::kDx, own(grad(value(Quantity::kResidual, at))));
}

/// Rows of the table, to which the adapter of the embedding adds; or of the table of that adapter.
void ValueRun::embed() {
  host_input(embed::kIds, "ids");
  if (params_.adapter_part(original(in(embed::kTable))) == AdapterPart::kA) {
    weight(embed::kTable, TensorRole::kEmbed, -1, AdapterPart::kA);
    return give(embed::kX, part_of_sum(lora_inner(TensorRole::kEmbed, -1)));
  }
  weight(embed::kTable, TensorRole::kEmbed, -1);
  const Value x = has_magnitudes(TensorRole::kEmbed, -1)
                      ? of_product(Quantity::kUnscaled, TensorRole::kEmbed, -1)
                      : value(Quantity::kResidual, 0);
  give(embed::kX, adapts_embedding() ? without_adapters(x) : part_of_sum(x));
}

void ValueRun::embed_bwd() {
  host_input(embed_bwd::kIds, "ids"), host_input(embed_bwd::kOrder, "order");
  if (params_.adapter_part(original(in(embed_bwd::kGradTable))) == AdapterPart::kA) {
    need(embed_bwd::kDx, grad(lora_inner(TensorRole::kEmbed, -1)));
    return contributes(embed_bwd::kGradTable, TensorRole::kEmbed, -1, AdapterPart::kA);
  }
  need(embed_bwd::kDx, grad(value(Quantity::kResidual, 0)));
  contributes(embed_bwd::kGradTable, TensorRole::kEmbed, -1);
}

/// Of a head with an adapter: u and B; with DoRA the factors, and in training with dropout the dropped input.
void ValueRun::adapter_of_head() {
  if (!adapts_head()) return;
  need(head::u(o_->kind), lora_inner(TensorRole::kHead, -1));
  if (ties_adapter())
    weight(head::b(o_->kind), TensorRole::kEmbed, -1, AdapterPart::kA);
  else
    weight(head::b(o_->kind), TensorRole::kHead, -1, AdapterPart::kB);
  if (!has_magnitudes(TensorRole::kHead, -1)) return;
  need(head::scale(o_->kind), of_product(Quantity::kDoraScale, TensorRole::kHead, -1));
  if (o_->kind == OpKind::kHeadEval) return;
  const bool backward = o_->kind == OpKind::kHeadLoss || o_->kind == OpKind::kHeadBwd;
  if (drops()) need(head::dropped(o_->kind), of_product(Quantity::kDropped, TensorRole::kHead, -1));
  if (drops() || backward) scratch(head::unscaled(o_->kind));
}

/// d hf, which lacks the part of A of an adapter, as does with DoRA the gradient of the dropped input; u
/// becomes its gradient, and that of B is added to.
void ValueRun::adapter_of_head_bwd(Out d_hf, Out d_u, Out d_dropped) {
  const Value hf = grad(value(Quantity::kNormed, 2 * layers_));
  if (!adapts_head()) return give(d_hf, part_of_sum(hf));
  if (ties_adapter())
    contributes(head::grad_b(o_->kind), TensorRole::kEmbed, -1, AdapterPart::kA);
  else
    contributes(head::grad_b(o_->kind), TensorRole::kHead, -1, AdapterPart::kB);
  give(d_hf, without_adapters(hf));
  if (has_magnitudes(TensorRole::kHead, -1)) {
    contributes(head::grad_magnitude(o_->kind), TensorRole::kHead, -1, AdapterPart::kMagnitude);
    if (drops())
      give(d_dropped, without_adapters(grad(of_product(Quantity::kDropped, TensorRole::kHead, -1))));
  }
  give(d_u, part_of_sum(grad(lora_inner(TensorRole::kHead, -1))));
}

/// Logits and cross-entropy in one operation, in chunks: the logits are scratch of the operation. Training
/// also writes the gradient of the hidden states.
void ValueRun::head(bool trains) {
  const Value hf = value(Quantity::kNormed, 2 * layers_);
  // Each pass of a section has exactly one head; expect_one_head() checks the count.
  ++heads_;
  need(head::kHf, hf);
  weight(head::kHead, head_role(), -1);
  host_input(head::kTargets, "targets");
  scratch(head::logits(o_->kind)), scratch(head::losses(o_->kind));
  if (has_tensor_ranks()) need(head::stats(o_->kind), value(Quantity::kHeadStats, 0));
  persistent(head::scalars(o_->kind));
  adapter_of_head();
  if (!trains) return;
  contributes_unless_frozen(head_loss::kGradHead, head_role(), -1);
  adapter_of_head_bwd(head_loss::kDHf, head_loss::kDU, head_loss::kDDropped);
}

/// In place on dqkv: the gradient behind the norm becomes the gradient before it. v passes through unchanged.
void ValueRun::qk_norm_bwd() {
  const std::int32_t l = o_->layer;
  need(qk_norm_bwd::kDQkv, grad(value(Quantity::kQkvNormed, l)));
  need(qk_norm_bwd::kPre, value(Quantity::kQkPre, l));
  need(qk_norm_bwd::kRstd, value(Quantity::kQkRstd, l));
  weight(qk_norm_bwd::kQWeight, TensorRole::kQNorm, l);
  weight(qk_norm_bwd::kKWeight, TensorRole::kKNorm, l);
  scratch(qk_norm_bwd::kPartials);
  contributes_unless_frozen(qk_norm_bwd::kGradQWeight, TensorRole::kQNorm, l);
  contributes_unless_frozen(qk_norm_bwd::kGradKWeight, TensorRole::kKNorm, l);
  give(qk_norm_bwd::kDQkvOut, grad(value(Quantity::kQkv, l)));
}

/// A cache has no contents at the first token and must be intact from then on. all() runs the generate
/// section twice, so the second token finds what the first one wrote.
void ValueRun::cache(In k, Value v) {
  const BufferId b = in(k);
  if (contents(b).quantity != Quantity::kNothing) need(k, v);
  if (p_[b].persistent) return;
  contents(b) = v;
  write(b);
}

/// One token: qkv has one row, and keys and values of earlier tokens come from the cache.
void ValueRun::attention_step() {
  const std::int32_t l = o_->layer;
  need(attention_step::kQkv, value(Quantity::kQkvRotated, l));
  cache(attention_step::kCacheK, value(Quantity::kKeys, l));
  cache(attention_step::kCacheV, value(Quantity::kValues, l));
  scratch(attention_step::kScratch);
  give(attention_step::kO, value(Quantity::kAttnOut, l));
}

void ValueRun::muon() {
  if (o_->ins <= muon::kDirection.slot) return update_with_scratch(muon::kWork);
  const std::uint32_t param = params_.param_of(in(muon::kGrad), ParamPart::kGrad);
  need(muon::kDirection, value(Quantity::kOrthogonal, static_cast<std::int32_t>(param)));
  for (std::uint8_t k = 0; k < muon::kDirection.slot; ++k) intact(in(In{k}));
  params_.update(i_);
  for (BufferId b : o_->outputs()) write(b);
}

/// Each TP rank writes its piece, if the ranks divide the parameter.
void ValueRun::muon_direction() {
  for (BufferId b : o_->inputs()) intact(b);
  const std::uint32_t param = params_.direction(i_);
  if (param == UINT32_MAX) return;
  write(out(muon_direction::kMOut));
  const Value v = value(Quantity::kDirection, static_cast<std::int32_t>(param));
  give(muon_direction::kX, params_.is_divided(param) ? part_of_sum(v) : v);
}

void ValueRun::muon_orthogonalise() {
  const BufferId x = in(muon_orthogonalise::kX);
  scratch(muon_orthogonalise::kWork);
  Value v = contents(x);
  if (v.quantity != Quantity::kDirection)
    return f_.at(i_, p_[x].name() + " is not the direction of a parameter");
  v.lacks = Lacks::kNothing;
  need(muon_orthogonalise::kX, v);
  v.quantity = Quantity::kOrthogonal;
  give(muon_orthogonalise::kXOut, v);
}

/// With the sums over the ranks where TP ranks divide the parameter.
void ValueRun::adafactor() {
  const std::uint32_t param = params_.param_of(in(adafactor::kGrad), ParamPart::kGrad);
  if (o_->ins > adafactor::kOfRanks.slot) {
    need(adafactor::kOfRanks, value(Quantity::kFactored, static_cast<std::int32_t>(param)));
    need(adafactor::kChange, value(Quantity::kChange, static_cast<std::int32_t>(param)));
  }
  update_with_scratch(adafactor::kSums);
}

/// Each TP rank has a part of the sums.
void ValueRun::adafactor_sums() {
  for (std::uint8_t k = 0; k < o_->ins; ++k)
    if (k != adafactor_sums::kSums.slot) intact(in(In{k}));
  scratch(adafactor_sums::kSums), persistent(adafactor_sums::kScalars);
  const std::uint32_t param = params_.factors(i_);
  if (param == UINT32_MAX) return;
  write(out(adafactor_sums::kOwnOut));
  give(adafactor_sums::kX, part_of_sum(value(Quantity::kFactored, static_cast<std::int32_t>(param))));
}

void ValueRun::adafactor_change() {
  for (const In k : {adafactor_change::kGrad, adafactor_change::kOwn, adafactor_change::kOther})
    if (in(k) != kNoBuffer) intact(in(k));
  scratch(adafactor_change::kSums), persistent(adafactor_change::kScalars);
  const std::uint32_t param = params_.factors(i_);
  if (param == UINT32_MAX) return;
  need(adafactor_change::kOfRanks, value(Quantity::kFactored, static_cast<std::int32_t>(param)));
  const bool matrix = in(adafactor_change::kOther) != kNoBuffer;
  if (matrix) write(out(adafactor_change::kOtherOut));
  give(matrix ? adafactor_change::kY : Out{0},
       part_of_sum(value(Quantity::kChange, static_cast<std::int32_t>(param))));
}

/// The destination gets the contents of the source; for a weight, kWeightCopy. A persistent destination is
/// only allowed for the copy of a weight that the update refreshes.
void ValueRun::copy() {
  const BufferId from = in(copy::kFrom), to = out(copy::kTo);
  const std::uint32_t param = params_.param_of(from, ParamPart::kWeight);
  intact(from);
  // A persistent copy of a weight is refreshed by the update; it never changes otherwise.
  if (p_[to].persistent) {
    if (param == UINT32_MAX || original_of_[to] != from)
      f_.at(i_, "writes over " + p_[to].name() + ", which this operation must not write");
    return write(to);
  }
  if (param != UINT32_MAX)
    contents(to) = value(Quantity::kWeightCopy, static_cast<std::int32_t>(param));
  else if (p_[from].persistent)
    return f_.at(i_, "copies " + p_[from].name() + ", which no operation needs in another tier");
  else if (contents(from).quantity == Quantity::kNothing)
    return f_.at(i_, "reads " + p_[from].name() + " before anything has written it");
  else
    contents(to) = contents(from);
  write(to);
}

/// Materialised logits become their own gradient in place (loss = -log softmax at the target).
void ValueRun::cross_entropy() {
  need(cross_entropy::kLogits, value(Quantity::kLogits, 0));
  host_input(cross_entropy::kTargets, "targets");
  persistent(cross_entropy::kScalars);
  give(cross_entropy::kDLogits, grad(value(Quantity::kLogits, 0)));
}

/// The backward pass of the head when logits are materialised.
void ValueRun::head_bwd() {
  const Value hf = value(Quantity::kNormed, 2 * layers_);
  need(head_bwd::kDLogits, grad(value(Quantity::kLogits, 0)));
  need(head_bwd::kHf, hf);
  weight(head_bwd::kHead, head_role(), -1);
  adapter_of_head();
  contributes_unless_frozen(head_bwd::kGradHead, head_role(), -1);
  adapter_of_head_bwd(head_bwd::kDHf, head_bwd::kDU, head_bwd::kDDropped);
}

/// Adds the gradient of one micro-batch, computed on the device, to the sum in host memory.
void ValueRun::add_grad() {
  const std::uint32_t param = params_.param_of(in(add_grad::kGrad), ParamPart::kGrad);
  if (param == UINT32_MAX)
    return f_.at(i_, "adds to " + p_[in(add_grad::kGrad)].name() + ", which is not a gradient");
  const Quantity part = p_.run.parallel.zero >= 2 ? Quantity::kGradSum : Quantity::kGradPart;
  need(add_grad::kPart, value(part, static_cast<std::int32_t>(param)));
  if (!(o_->flags & kFirstWrite && first_micro_)) intact(in(add_grad::kGrad));
  params_.contribute(i_, in(add_grad::kGrad), o_->flags & kFirstWrite, first_micro_);
  write(in(add_grad::kGrad));
}

/// One case per kind, in the order of OpKind. There is no default, so the compiler reports a new kind without
/// a rule.
void ValueRun::apply() {
  const std::int32_t l = o_->layer;
  switch (o_->kind) {
    case OpKind::kEmbed:
      embed();
      break;
    case OpKind::kRmsNorm:
      rms_norm();
      break;
    case OpKind::kLinear:
      forward_linear();
      break;
    case OpKind::kQkNorm:
      need(qk_norm::kQkv, value(Quantity::kQkv, l)), weight(qk_norm::kQWeight, TensorRole::kQNorm, l),
          weight(qk_norm::kKWeight, TensorRole::kKNorm, l);
      give(qk_norm::kQkvOut, value(Quantity::kQkvNormed, l)), give(qk_norm::kPre, value(Quantity::kQkPre, l)),
          give(qk_norm::kRstd, value(Quantity::kQkRstd, l));
      break;
    case OpKind::kRope:
      need(rope::kQkv, qkv_before_rope(l)), persistent(rope::kTable),
          give(rope::kQkvOut, value(Quantity::kQkvRotated, l));
      break;
    case OpKind::kAttention:
      need(attention::kQkv, value(Quantity::kQkvRotated, l)), scratch(attention::kScratch);
      if (p_.run.document_mask) host_input(attention::kStarts, "starts");
      give(attention::kO, value(Quantity::kAttnOut, l)), give(attention::kLse, value(Quantity::kLse, l));
      break;
    case OpKind::kSwiGlu:
      need(swiglu::kGateUp, value(Quantity::kGateUp, l)), give(swiglu::kAct, value(Quantity::kAct, l));
      break;
    case OpKind::kHeadLoss:
      head(true);
      break;
    case OpKind::kHeadEval:
      head(false);
      break;
    case OpKind::kHeadLogits:
      ++heads_, need(head_logits::kHf, value(Quantity::kNormed, 2 * layers_)),
          weight(head_logits::kHead, head_role(), -1);
      adapter_of_head();
      give(head_logits::kLogits, part_of_sum(value(Quantity::kLogits, 0)));
      break;
    case OpKind::kHeadStats:
      need(head_stats::kHf, value(Quantity::kNormed, 2 * layers_)),
          weight(head_stats::kHead, head_role(), -1);
      host_input(head_stats::kTargets, "targets"), scratch(head_stats::kLogits);
      adapter_of_head();
      give(head_stats::kStats, part_of_rank(value(Quantity::kHeadStats, 0)));
      break;
    case OpKind::kRmsNormBwd:
      rms_norm_bwd();
      break;
    case OpKind::kLinearDx:
      linear_dx();
      break;
    case OpKind::kLinearDw:
      linear_dw();
      break;
    case OpKind::kSwiGluBwd:
      need(swiglu_bwd::kDAct, grad(value(Quantity::kAct, l))),
          need(swiglu_bwd::kGateUp, value(Quantity::kGateUp, l));
      give(swiglu_bwd::kDGateUp, grad(value(Quantity::kGateUp, l)));
      break;
    case OpKind::kAttentionBwd:
      need(attention_bwd::kDO, grad(value(Quantity::kAttnOut, l))),
          need(attention_bwd::kO, value(Quantity::kAttnOut, l)),
          need(attention_bwd::kLse, value(Quantity::kLse, l));
      need(attention_bwd::kQkv, value(Quantity::kQkvRotated, l)), scratch(attention_bwd::kScratch),
          give(attention_bwd::kDQkv, grad(value(Quantity::kQkvRotated, l)));
      if (p_.run.document_mask) host_input(attention_bwd::kStarts, "starts");
      break;
    case OpKind::kRopeBwd:
      need(attention_bwd::kDO, grad(value(Quantity::kQkvRotated, l))), persistent(attention_bwd::kO),
          give(attention_bwd::kDQkv, grad(qkv_before_rope(l)));
      break;
    case OpKind::kDropout:
    case OpKind::kDropoutAdd:
      dropout();
      break;
    case OpKind::kQkNormBwd:
      qk_norm_bwd();
      break;
    case OpKind::kEmbedBwd:
      embed_bwd();
      break;
    case OpKind::kGradSquares:
      params_.squares(i_, in(grad_squares::kGrad)), intact(in(grad_squares::kGrad)),
          persistent(grad_squares::kScalars), scratch(grad_squares::kPartials);
      break;
    case OpKind::kAdamW:
    case OpKind::kSgd:
    // All operands of an optimizer are persistent; their identity is checked in update().
    case OpKind::kSgdMomentum:
    case OpKind::kLion:
    case OpKind::kAdamW8bit:
      for (BufferId b : o_->inputs()) intact(b);
      params_.update(i_);
      for (BufferId b : o_->outputs()) write(b);
      break;
    case OpKind::kAdafactor:
      adafactor();
      break;
    case OpKind::kAdafactorSums:
      adafactor_sums();
      break;
    case OpKind::kAdafactorChange:
      adafactor_change();
      break;
    case OpKind::kMuon:
      muon();
      break;
    case OpKind::kMuonDirection:
      muon_direction();
      break;
    case OpKind::kMuonOrthogonalise:
      muon_orthogonalise();
      break;
    case OpKind::kAttentionStep:
      attention_step();
      break;
    case OpKind::kCopy:
      copy();
      break;
    case OpKind::kHold:
      // Keeps its operands live; it neither reads nor writes them.
      break;
    case OpKind::kCrossEntropy:
      cross_entropy();
      break;
    case OpKind::kHeadBwd:
      head_bwd();
      break;
    case OpKind::kAddGrad:
      add_grad();
      break;
    case OpKind::kLoraB:
      lora_b();
      break;
    case OpKind::kLoraBDx:
      lora_b_dx();
      break;
    case OpKind::kLoraBDw:
      lora_b_dw();
      break;
    case OpKind::kLinearDxAdd:
      linear_dx_add();
      break;
    case OpKind::kDequantize:
      dequantize();
      break;
    case OpKind::kDoraScale:
      dora_scale();
      break;
    case OpKind::kDoraSquares:
      dora_squares();
      break;
    case OpKind::kDoraFactors:
      dora_factors();
      break;
    case OpKind::kDora:
      dora();
      break;
    case OpKind::kDoraBwd:
      dora_bwd();
      break;
    case OpKind::kTranspose:
      transpose();
      break;
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
      collective();
      break;
    case OpKind::kWait:
      wait();
      break;
    case OpKind::kTakeRows:
      take_rows();
      break;
    case OpKind::kSumScalars:
      sum_scalars();
      break;
    case OpKind::kCount_:
      break;
  }
}

}  // namespace trainhost::placement
