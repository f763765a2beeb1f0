// The checker's run of a program on values: its state, and the words in which check_ops.cpp says what each
// kind of operation needs to find and leaves behind. Internal to the checker; the entry is check_values.hpp.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "core/placement/check_arena.hpp"
#include "core/placement/check_findings.hpp"
#include "core/placement/check_params.hpp"
#include "core/placement/check_values.hpp"
#include "core/step/operands.hpp"

namespace trainhost::placement {

inline constexpr Value value(Thing t, std::int32_t at) { return {t, at, false}; }
inline constexpr Value grad(Value v) { return {v.thing, v.at, true}; }

/// The four matrix products of a layer: what each takes and makes, and the residual that it adds, if any.
struct Product {
  Value x, y;
  TensorRole bias;
  bool has_residual = false;
  Value residual{};
};

class ValueRun {
 public:
  ValueRun(const Program& p, const MemoryPlan& plan, Findings& f)
      : p_(p),
        f_(f),
        arena_(p, plan),
        params_(p, f),
        held_(2 * p.buffers.size()),
        stands_for_(p.buffers.size(), kNoBuffer),
        layers_(static_cast<std::int32_t>(p.model.layers)) {
    for (BufferId b = 0; b < p.buffers.size(); ++b)
      if (p[b].persistent && p[b].component != Component::kGradients)
        for (std::uint32_t i = 0; i < p[b].ring; ++i) arena_.write(b, ArenaMap::kNobody, i);
    find_stand_ins();
  }

  void all() {
    const bool trains = p_.run.mode != RunMode::kInference;
    const auto train = [&] {
      if (trains) micro_batches(), update();
    };
    train();
    section(SectionKind::kEval);
    section(SectionKind::kGenerate);
    section(SectionKind::kGenerate);
    train();
    section(SectionKind::kEval);
  }

 private:
  // ---- sections
  void forget() {
    for (std::size_t i = 0; i < held_.size(); ++i)
      if (held_[i].thing != Thing::kKeys && held_[i].thing != Thing::kValues) held_[i] = {};
  }
  void range(std::uint32_t begin, std::uint32_t end) {
    for (i_ = begin; i_ < end; ++i_) one();
  }
  void one_head(SectionKind k) {
    if (heads_ != 1) f_.add(std::string(name(k)) + " has " + std::to_string(heads_) + " heads, needs one");
    heads_ = 0;
  }
  void section(SectionKind k) {
    const Section s = p_.section(k);
    forget();
    heads_ = instance_ = 0;
    range(s.begin, s.end);
    one_head(k);
  }
  /// Three micro-batches: one after the other, or where there are rings each forward part before the backward
  /// part of the micro-batch before it.
  void micro_batches() {
    const Section s = p_.section(SectionKind::kMicro);
    const bool rings =
        std::any_of(p_.buffers.begin(), p_.buffers.end(), [](const Buffer& b) { return b.ring > 1; });
    const std::uint32_t cut = backward_begin(p_);
    constexpr std::uint32_t kTimes = 3;
    forget();
    heads_ = 0;
    const auto forward = [&](std::uint32_t m) {
      instance_ = m % 2, range(s.begin, cut);
      if (rings) one_head(SectionKind::kMicro);
    };
    const auto backward = [&](std::uint32_t m) {
      instance_ = m % 2, first_micro_ = m == 0, range(cut, s.end);
      if (!rings) one_head(SectionKind::kMicro), forget();
      params_.end_of_micro();
    };
    if (rings) forward(0);
    for (std::uint32_t m = 0; m < kTimes; ++m) {
      if (!rings)
        forward(m);
      else if (m + 1 < kTimes)
        forward(m + 1);
      backward(m);
    }
    instance_ = 0;
  }
  void update() {
    const Section s = p_.section(SectionKind::kUpdate);
    range(s.begin, s.end);
    params_.end_of_update();
  }
  static const char* name(SectionKind k) {
    return k == SectionKind::kMicro ? "micro" : k == SectionKind::kEval ? "eval" : "generate";
  }

  void one() {
    o_ = &p_.ops[i_];
    operands_are_apart();
    step();
  }

  /// What an operation writes may not share bytes with anything else that it touches.
  void operands_are_apart() {
    const auto written = [&](BufferId w) {
      for (BufferId b : o_->inputs())
        if (b != kNoBuffer && arena_.overlap(w, b)) f_.at(i_, p_[w].name() + " overlaps " + p_[b].name());
      for (BufferId b : o_->outputs())
        if (arena_.overlap(w, b)) f_.at(i_, p_[w].name() + " overlaps " + p_[b].name());
    };
    for (BufferId w : o_->outputs()) written(w);
    for (std::size_t k = 0; k < o_->ins; ++k)
      if ((scratch_slots() >> k & 1) && o_->in[k] != kNoBuffer) written(o_->in[k]);
  }
  std::uint32_t scratch_slots() const {
    using namespace operand;
    const auto bit = [](In k) { return 1u << k.slot; };
    switch (o_->kind) {
      case OpKind::kAttention:
        return bit(attention::kScratch);
      case OpKind::kAttentionBwd:
        return bit(attention_bwd::kScratch);
      case OpKind::kLinearDw:
        return bit(linear_dw::kPartials);
      case OpKind::kHeadLoss:
        return bit(head_loss::kLogits) | bit(head_loss::kLosses);
      case OpKind::kHeadEval:
        return bit(head_eval::kLogits) | bit(head_eval::kLosses);
      case OpKind::kAttentionStep:
        return bit(attention_step::kScratch);
      case OpKind::kRmsNormBwd:
        return bit(rms_norm_bwd::kPartials);
      case OpKind::kQkNormBwd:
        return bit(qk_norm_bwd::kPartials);
      case OpKind::kGradSquares:
        return bit(grad_squares::kPartials);
      default:
        return 0;
    }
  }

  // ---- parameters that have another place for a while
  /// A persistent copy of a weight that the update refreshes, and places where the gradient of one
  /// micro-batch is made before the host adds it: found by following copies, not by names.
  void find_stand_ins() {
    const Section update = p_.section(SectionKind::kUpdate);
    for (std::uint32_t i = update.begin; i < update.end; ++i)
      if (const Op& o = p_.ops[i];
          o.kind == OpKind::kCopy &&
          params_.param_of(o[operand::copy::kFrom], ParamPart::kWeight) != UINT32_MAX)
        stands_for_[o[operand::copy::kTo]] = o[operand::copy::kFrom];
    for (const Op& add : p_.ops)
      if (add.kind == OpKind::kAddGrad)
        stands_for_[add[operand::add_grad::kPart]] = add[operand::add_grad::kGrad];
    for (const Op& o : p_.ops)
      if (o.kind == OpKind::kCopy && stands_for_[o[operand::copy::kTo]] != kNoBuffer &&
          params_.param_of(stands_for_[o[operand::copy::kTo]], ParamPart::kGrad) != UINT32_MAX)
        stands_for_[o[operand::copy::kFrom]] = stands_for_[o[operand::copy::kTo]];
  }
  /// The parameter's own buffer.
  BufferId own(BufferId b) const {
    if (b == kNoBuffer || params_.known(b)) return b;
    if (stands_for_[b] != kNoBuffer) return stands_for_[b];
    const Value v = held(b);
    return v.thing == Thing::kWeightCopy ? p_.params[static_cast<std::size_t>(v.at)].weight : b;
  }
  Value& held(BufferId b) { return held_[arena_.index(b, instance_)]; }
  const Value& held(BufferId b) const { return held_[arena_.index(b, instance_)]; }
  void write(BufferId b) { arena_.write(b, i_, instance_); }

  // ---- operands
  BufferId in(In k) const { return (*o_)[k]; }
  BufferId out(Out k) const { return (*o_)[k]; }
  bool intact(BufferId b) {
    if (b == kNoBuffer || p_[b].storage == Storage::kExternal ||
        arena_.lost_to(b, instance_) == ArenaMap::kNobody)
      return true;
    f_.at(i_, "reads " + p_[b].name() + ", whose bytes " + f_.where(arena_.lost_to(b, instance_)) +
                  " has overwritten");
    return false;
  }
  void need(In k, Value v) { need_buffer(in(k), v); }
  void need_buffer(BufferId b, Value v) {
    if (p_[b].persistent || p_[b].storage == Storage::kExternal || held(b).thing == Thing::kNothing)
      return f_.at(i_, "reads " + p_[b].name() + " before anything has written it");
    if (!(held(b) == v))
      return f_.at(i_, "needs " + text(v) + " in " + p_[b].name() + ", which holds " + text(held(b)));
    intact(b);
  }
  void give(Out k, Value v) {
    if (k.slot >= o_->outs) return;
    const BufferId b = out(k);
    if (p_[b].persistent || p_[b].storage == Storage::kExternal)
      return f_.at(i_, "writes " + text(v) + " over " + p_[b].name() + ", which is not its to write");
    held(b) = v;
    write(b);
  }
  void scratch(In k) {
    const BufferId b = in(k);
    if (b == kNoBuffer) return;
    if (p_[b].persistent) return f_.at(i_, "uses " + p_[b].name() + " as scratch");
    held(b) = {};
    write(b);
  }
  /// A persistent buffer that is no parameter: table, scalars.
  void lasting(In k) {
    const BufferId b = in(k);
    if (!p_[b].persistent || params_.known(b))
      f_.at(i_, "finds " + p_[b].name() + " where something lasting belongs");
    intact(b);
  }
  void handed_in(In k, const char* role) {
    if (in(k) != kNoBuffer && p_[in(k)].role != std::string_view(role))
      f_.at(i_, "finds " + p_[in(k)].name() + " where " + role + " belong");
  }
  /// The weight in slot k, with this role and layer.
  void weight(In k, TensorRole role, std::int32_t layer) {
    params_.expect(i_, own(in(k)), ParamPart::kWeight, role, layer);
    intact(in(k));
  }
  void contributes(In k, TensorRole role, std::int32_t layer) {
    const BufferId b = in(k), of = own(b);
    params_.expect(i_, of, ParamPart::kGrad, role, layer);
    if (of != b) return part(b, of);
    const bool overwrite = (o_->flags & kFreshGrad) || ((o_->flags & kFirstWrite) && first_micro_);
    if (o_->flags & kFreshGrad) f_.at(i_, "overwrites " + p_[b].name() + " in every micro-batch");
    if (!overwrite) intact(b);
    params_.contribute(i_, b, o_->flags & kFirstWrite, first_micro_);
    write(b);
  }
  /// A gradient of this micro-batch alone.
  void part(BufferId b, BufferId of) {
    if (!(o_->flags & kFreshGrad))
      f_.at(i_, "adds to " + p_[b].name() + ", which holds nothing of an earlier micro-batch");
    held(b) = value(Thing::kGradPart, static_cast<std::int32_t>(params_.param_of(of, ParamPart::kGrad)));
    write(b);
  }

  // ---- the parts of a layer
  TensorRole head_role() const { return p_.model.tied ? TensorRole::kEmbed : TensorRole::kHead; }
  Value qkv_before_rope(std::int32_t l) const {
    return value(p_.model.qk_norm ? Thing::kQkvNormed : Thing::kQkv, l);
  }

  bool product(TensorRole r, std::int32_t l, Product& out) const {
    switch (r) {
      case TensorRole::kQ:
        out = {value(Thing::kNormed, 2 * l), value(Thing::kQkv, l), TensorRole::kQBias};
        break;
      case TensorRole::kO:
        out = {value(Thing::kAttnOut, l), value(Thing::kResidual, 2 * l + 1), TensorRole::kOBias, true,
               value(Thing::kResidual, 2 * l)};
        break;
      case TensorRole::kGate:
        out = {value(Thing::kNormed, 2 * l + 1), value(Thing::kGateUp, l), TensorRole::kGateBias};
        break;
      case TensorRole::kDown:
        out = {value(Thing::kAct, l), value(Thing::kResidual, 2 * l + 2), TensorRole::kDownBias, true,
               value(Thing::kResidual, 2 * l + 1)};
        break;
      default:
        return false;
    }
    return true;
  }
  bool biased(TensorRole bias) const {
    const ModelSpec& m = p_.model;
    return bias == TensorRole::kQBias ? m.qkv_bias : bias == TensorRole::kOBias ? m.o_bias : m.mlp_bias;
  }
  /// Half step of the norm whose weight (or its gradient) this is; -1 when it is no such norm.
  std::int32_t norm_at(BufferId b) const {
    switch (params_.role(own(b))) {
      case TensorRole::kNorm1:
        return 2 * params_.layer(own(b));
      case TensorRole::kNorm2:
        return 2 * params_.layer(own(b)) + 1;
      case TensorRole::kFinalNorm:
        return 2 * layers_;
      default:
        return -1;
    }
  }

  void step();
  void forward_linear();
  void linear_dx();
  void linear_dw();
  void rms_norm();
  void rms_norm_bwd();
  void head(bool trains);
  void qk_norm_bwd();
  void attention_step();
  void copy();
  void cross_entropy();
  void head_bwd();
  void add_grad();
  void cache(In k, Value v);

  const Program& p_;
  Findings& f_;
  ArenaMap arena_;
  ParamBook params_;
  std::vector<Value> held_;           // by ArenaMap::index(), transient buffers
  std::vector<BufferId> stands_for_;  // by BufferId: the parameter's own, or kNoBuffer
  std::int32_t layers_;
  bool first_micro_ = true;
  std::uint32_t heads_ = 0, instance_ = 0;
  std::uint32_t i_ = 0;
  const Op* o_ = nullptr;
};

}  // namespace trainhost::placement
