// What each kind of operation needs to find in its operands and what it leaves: one case a kind. Which layer
// and which part of it an operation belongs to is told by the tensors inside its weight, never by names of
// buffers.
#include "core/placement/check_execution.hpp"

namespace trainhost::placement {

void ValueRun::rms_norm() {
  const std::int32_t at = norm_at(o_->in[1]);
  if (at < 0) return f_.at(i_, p_[o_->in[1]].name() + " is no norm's weight");
  need(0, value(Thing::kResidual, at));
  weight(1, params_.role(own(o_->in[1])), params_.layer(own(o_->in[1])));
  give(0, value(Thing::kNormed, at));
  give(1, value(Thing::kRstd, at));
}

void ValueRun::forward_linear() {
  const TensorRole r = params_.role(own(o_->in[1]));
  const std::int32_t l = params_.layer(own(o_->in[1]));
  Product q;
  if (!product(r, l, q)) return f_.at(i_, p_[o_->in[1]].name() + " is no linear layer's weight");
  need(0, q.x);
  weight(1, r, l);
  if ((o_->in[2] != kNoBuffer) != biased(q.bias))
    f_.at(i_, biased(q.bias) ? "leaves out the bias" : "has a bias");
  else if (o_->in[2] != kNoBuffer)
    weight(2, q.bias, l);
  if ((o_->in[3] != kNoBuffer) != q.has_residual)
    f_.at(i_, q.has_residual ? "leaves out the residual" : "adds a residual");
  else if (q.has_residual)
    need(3, q.residual);
  give(0, q.y);
}

void ValueRun::linear_dx() {
  const TensorRole r = params_.role(own(o_->in[1]));
  const std::int32_t l = params_.layer(own(o_->in[1]));
  Product q;
  if (!product(r, l, q)) return f_.at(i_, p_[o_->in[1]].name() + " is no linear layer's weight");
  need(0, grad(q.y));
  weight(1, r, l);
  give(0, grad(q.x));
}

void ValueRun::linear_dw() {
  const TensorRole r = params_.role(own(o_->in[2]));
  const std::int32_t l = params_.layer(own(o_->in[2]));
  Product q;
  if (!product(r, l, q)) return f_.at(i_, p_[o_->in[2]].name() + " is no linear layer's gradient");
  need(0, grad(q.y));
  need(1, q.x);
  contributes(2, r, l);
  if ((o_->in[3] != kNoBuffer) != biased(q.bias))
    f_.at(i_, biased(q.bias) ? "leaves out the bias" : "has a bias");
  else if (o_->in[3] != kNoBuffer)
    contributes(3, q.bias, l);
  scratch(4);
}

/// x_{j+1} = x_j + f(norm(x_j)), so d x_j = d x_{j+1} + what comes back through the norm.
void ValueRun::rms_norm_bwd() {
  const std::int32_t at = norm_at(o_->in[3]), last = 2 * layers_;
  if (at < 0) return f_.at(i_, p_[o_->in[3]].name() + " is no norm's weight");
  need(0, grad(value(Thing::kNormed, at)));
  need(1, value(Thing::kResidual, at));
  need(2, value(Thing::kRstd, at));
  weight(3, params_.role(own(o_->in[3])), params_.layer(own(o_->in[3])));
  if ((o_->in[4] == kNoBuffer) != (at == last))
    f_.at(i_,
          at == last ? "adds to a residual gradient that does not exist yet" : "drops the residual gradient");
  else if (at != last)
    need(4, grad(value(Thing::kResidual, at + 1)));
  scratch(6);
  contributes(5, params_.role(own(o_->in[3])), params_.layer(own(o_->in[3])));
  give(0, grad(value(Thing::kResidual, at)));
}

void ValueRun::head(bool trains) {
  const Value hf = value(Thing::kNormed, 2 * layers_);
  ++heads_;
  need(0, hf);
  weight(1, head_role(), -1);
  handed_in(2, "targets");
  scratch(trains ? 4 : 3), scratch(trains ? 6 : 5);
  lasting(trains ? 5 : 4);
  if (!trains) return;
  contributes(3, head_role(), -1);
  give(0, grad(hf));
}

void ValueRun::qk_norm_bwd() {
  const std::int32_t l = o_->layer;
  need(0, grad(value(Thing::kQkvNormed, l)));
  need(1, value(Thing::kQkPre, l));
  need(2, value(Thing::kQkRstd, l));
  weight(3, TensorRole::kQNorm, l);
  weight(4, TensorRole::kKNorm, l);
  scratch(7);
  contributes(5, TensorRole::kQNorm, l);
  contributes(6, TensorRole::kKNorm, l);
  give(0, grad(value(Thing::kQkv, l)));
}

/// A cache is empty at the first token and must be intact from then on.
void ValueRun::cache(std::size_t k, Value v) {
  const BufferId b = o_->in[k];
  if (held(b).thing != Thing::kNothing) need(k, v);
  if (p_[b].persistent) return;
  held(b) = v;
  write(b);
}

void ValueRun::attention_step() {
  const std::int32_t l = o_->layer;
  need(0, value(Thing::kQkvTurned, l));
  cache(1, value(Thing::kKeys, l));
  cache(2, value(Thing::kValues, l));
  scratch(3);
  give(0, value(Thing::kAttnOut, l));
}

/// What arrives is what was there; of a weight, a copy. Over a lasting buffer only the copy of a weight that
/// is kept in step.
void ValueRun::copy() {
  const BufferId from = o_->in[0], to = o_->out[0];
  const std::uint32_t param = params_.param_of(from, ParamPart::kWeight);
  intact(from);
  if (p_[to].persistent) {
    if (param == UINT32_MAX || stands_for_[to] != from)
      f_.at(i_, "writes over " + p_[to].name() + ", which is not its to write");
    return write(to);
  }
  if (param != UINT32_MAX)
    held(to) = value(Thing::kWeightCopy, static_cast<std::int32_t>(param));
  else if (p_[from].persistent)
    return f_.at(i_, "copies " + p_[from].name() + ", which nobody needs elsewhere");
  else if (held(from).thing == Thing::kNothing)
    return f_.at(i_, "reads " + p_[from].name() + " before anything has written it");
  else
    held(to) = held(from);
  write(to);
}

void ValueRun::cross_entropy() {
  need(0, value(Thing::kLogits, 0));
  handed_in(1, "targets");
  lasting(2);
  give(0, grad(value(Thing::kLogits, 0)));
}

void ValueRun::head_bwd() {
  const Value hf = value(Thing::kNormed, 2 * layers_);
  need(0, grad(value(Thing::kLogits, 0)));
  need(1, hf);
  weight(2, head_role(), -1);
  contributes(3, head_role(), -1);
  give(0, grad(hf));
}

void ValueRun::add_grad() {
  const std::uint32_t param = params_.param_of(o_->in[1], ParamPart::kGrad);
  if (param == UINT32_MAX) return f_.at(i_, "adds to " + p_[o_->in[1]].name() + ", which is no gradient");
  need(0, value(Thing::kGradPart, static_cast<std::int32_t>(param)));
  params_.contribute(i_, o_->in[1], o_->flags & kFirstWrite, first_micro_);
  write(o_->in[1]);
}

void ValueRun::step() {
  const std::int32_t l = o_->layer;
  switch (o_->kind) {
    case OpKind::kEmbed:
      weight(0, TensorRole::kEmbed, -1), handed_in(1, "ids"), give(0, value(Thing::kResidual, 0));
      break;
    case OpKind::kRmsNorm:
      rms_norm();
      break;
    case OpKind::kLinear:
      forward_linear();
      break;
    case OpKind::kQkNorm:
      need(0, value(Thing::kQkv, l)), weight(1, TensorRole::kQNorm, l), weight(2, TensorRole::kKNorm, l);
      give(0, value(Thing::kQkvNormed, l)), give(1, value(Thing::kQkPre, l)),
          give(2, value(Thing::kQkRstd, l));
      break;
    case OpKind::kRope:
      need(0, qkv_before_rope(l)), lasting(1), give(0, value(Thing::kQkvTurned, l));
      break;
    case OpKind::kAttention:
      need(0, value(Thing::kQkvTurned, l)), scratch(1);
      give(0, value(Thing::kAttnOut, l)), give(1, value(Thing::kLse, l));
      break;
    case OpKind::kSwiGlu:
      need(0, value(Thing::kGateUp, l)), give(0, value(Thing::kAct, l));
      break;
    case OpKind::kHeadLoss:
      head(true);
      break;
    case OpKind::kHeadEval:
      head(false);
      break;
    case OpKind::kHeadLogits:
      ++heads_, need(0, value(Thing::kNormed, 2 * layers_)), weight(1, head_role(), -1);
      give(0, value(Thing::kLogits, 0));
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
      need(0, grad(value(Thing::kAct, l))), need(1, value(Thing::kGateUp, l));
      give(0, grad(value(Thing::kGateUp, l)));
      break;
    case OpKind::kAttentionBwd:
      need(0, grad(value(Thing::kAttnOut, l))), need(1, value(Thing::kAttnOut, l)),
          need(2, value(Thing::kLse, l));
      need(3, value(Thing::kQkvTurned, l)), scratch(4), give(0, grad(value(Thing::kQkvTurned, l)));
      break;
    case OpKind::kRopeBwd:
      need(0, grad(value(Thing::kQkvTurned, l))), lasting(1), give(0, grad(qkv_before_rope(l)));
      break;
    case OpKind::kQkNormBwd:
      qk_norm_bwd();
      break;
    case OpKind::kEmbedBwd:
      need(0, grad(value(Thing::kResidual, 0))), handed_in(1, "ids"), handed_in(3, "order");
      contributes(2, TensorRole::kEmbed, -1);
      break;
    case OpKind::kGradSquares:
      params_.squares(i_, o_->in[0]), intact(o_->in[0]), lasting(1), scratch(2);
      break;
    case OpKind::kAdamW:
    case OpKind::kSgd:
    case OpKind::kSgdMomentum:
      for (BufferId b : o_->inputs()) intact(b);
      params_.update(i_);
      for (BufferId b : o_->outputs()) write(b);
      break;
    case OpKind::kAttentionStep:
      attention_step();
      break;
    case OpKind::kCopy:
      copy();
      break;
    case OpKind::kHold:
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
    case OpKind::kCount_:
      break;
  }
}

}  // namespace trainhost::placement
