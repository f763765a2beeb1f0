// The checker's run of a program on symbolic values: its state, and the primitives with which check_ops.cpp
// and check_collectives.cpp state what each operation reads and writes. Internal to the checker; the entry is
// check_values.hpp.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "core/model/adapters.hpp"
#include "core/model/trainable.hpp"
#include "core/placement/check_arena.hpp"
#include "core/placement/check_findings.hpp"
#include "core/placement/check_params.hpp"
#include "core/placement/check_values.hpp"
#include "core/step/device_modes.hpp"
#include "core/step/operands.hpp"

namespace trainhost::placement {

inline constexpr Value value(Quantity t, std::int32_t at) { return {t, at, false}; }
inline constexpr Value grad(Value v) { return {v.quantity, v.at, true, v.lacks, v.own_rows}; }
/// v before its adapters have added their part.
inline constexpr Value without_adapters(Value v) { return {v.quantity, v.at, v.gradient, Lacks::kAdapters}; }
/// v before the magnitudes of DoRA have changed it.
inline constexpr Value without_magnitudes(Value v) {
  return {v.quantity, v.at, v.gradient, Lacks::kMagnitudes};
}

/// v before the TP ranks have brought their parts together.
inline constexpr Value part_of_rank(Value v) { return {v.quantity, v.at, v.gradient, Lacks::kTensorRanks}; }

/// One of the four matrix products of a layer: input, output, bias, and the residual that it adds, if any.
struct Product {
  Value x, y;
  TensorRole bias{};
  bool has_residual = false;
  Value residual{};
  bool divides_inputs = has_residual;  // among TP ranks; else they divide the outputs
};

/// Executes the program on symbolic values, with the bytes of the arena represented by ArenaMap: what each
/// buffer holds, and whether its bytes were overwritten since. Findings are collected, not thrown, so that
/// one run reports all of them.
class ValueRun {
 public:
  ValueRun(const Program& p, const MemoryPlan& plan, Findings& f)
      : p_(p),
        f_(f),
        arena_(p, plan),
        params_(p, f),
        contents_(2 * p.buffers.size()),
        original_of_(p.buffers.size(), kNoBuffer),
        in_flight_(p.buffers.size()),
        parts_(p.buffers.size()),
        layers_(static_cast<std::int32_t>(p.model.layers)) {
    for (BufferId b = 0; b < p.buffers.size(); ++b)
      if (p[b].persistent && p[b].component != Component::kGradients)
        for (std::uint32_t i = 0; i < p[b].ring; ++i) arena_.write(b, ArenaMap::kNone, i);
    find_copies_of_parameters();
  }

  /// Training, evaluation and generation in the order in which a run may call them, each twice where a second
  /// pass could find leftovers of the first: a section must not rely on what another one left behind.
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
  /// Transient values end with their section; keys and values are kept from token to token.
  void forget() {
    for (std::size_t i = 0; i < contents_.size(); ++i)
      if (contents_[i].quantity != Quantity::kKeys && contents_[i].quantity != Quantity::kValues)
        contents_[i] = {};
  }
  void range(std::uint32_t begin, std::uint32_t end) {
    for (i_ = begin; i_ < end; ++i_) run_op();
  }
  void expect_one_head(SectionKind k) {
    if (heads_ != 1) f_.add(std::string(name(k)) + " has " + std::to_string(heads_) + " heads, expected one");
    heads_ = 0;
  }
  void section(SectionKind k) {
    const Section s = p_.section(k);
    forget();
    heads_ = instance_ = 0;
    range(s.begin, s.end);
    expect_one_head(k);
  }
  /// Three micro-batches, or one: one after the other, or, if the program has rings, forward i + 1 before
  /// backward i.
  void micro_batches() {
    const Section s = p_.section(SectionKind::kMicro);
    const bool rings =
        std::any_of(p_.buffers.begin(), p_.buffers.end(), [](const Buffer& b) { return b.ring > 1; });
    // Operations [begin, cut) are the forward pass of a micro-batch, [cut, end) its backward pass.
    const std::uint32_t cut = backward_begin(p_);
    // A trainer never runs more if the plan relies on one.
    const std::uint32_t micro_batches = p_.run.accumulate == 1 && p_.traits.tier == Tier::kHost ? 1 : 3;
    forget();
    heads_ = 0;
    // Rings have two instances of a buffer; micro-batch m uses instance m mod 2.
    const auto forward = [&](std::uint32_t m) {
      instance_ = m % 2, range(s.begin, cut);
      if (rings) expect_one_head(SectionKind::kMicro);
    };
    const auto backward = [&](std::uint32_t m) {
      instance_ = m % 2, first_micro_ = m == 0, last_micro_ = m + 1 == micro_batches, range(cut, s.end);
      if (!rings) expect_one_head(SectionKind::kMicro), forget();
      params_.end_of_micro();
    };
    if (rings) forward(0);
    for (std::uint32_t m = 0; m < micro_batches; ++m) {
      if (!rings)
        forward(m);
      else if (m + 1 < micro_batches)
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

  /// Overlaps are checked per operation, because only operands of one operation must not share bytes.
  void run_op() {
    o_ = &p_.ops[i_];
    if ((o_->flags & kLastMicro) && !last_micro_) return;
    check_not_in_flight();
    check_overlaps();
    apply();
  }

  /// What a collective changes may be used by nothing but its wait.
  void check_not_in_flight() {
    const bool waits = o_->kind == OpKind::kWait;
    for (const std::span<const BufferId> side : {o_->inputs(), o_->outputs()})
      for (const BufferId b : side)
        if (b != kNoBuffer && in_flight_[b] && !waits)
          f_.at(i_, "uses " + p_[b].name() + " while a collective changes it");
  }

  /// An operand that is written must not share bytes with another operand.
  void check_overlaps() {
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
        return bit(head_loss::kLogits) | bit(head_loss::kLosses) | bit(head_loss::kUnscaled);
      case OpKind::kHeadEval:
        return bit(head_eval::kLogits) | bit(head_eval::kLosses);
      case OpKind::kHeadStats:
        return bit(head_stats::kLogits) | bit(head_stats::kUnscaled);
      case OpKind::kHeadLogits:
        return bit(head_logits::kUnscaled);
      case OpKind::kHeadBwd:
        return bit(head_bwd::kUnscaled);
      case OpKind::kAttentionStep:
        return bit(attention_step::kScratch);
      case OpKind::kRmsNormBwd:
        return bit(rms_norm_bwd::kPartials);
      case OpKind::kQkNormBwd:
        return bit(qk_norm_bwd::kPartials);
      case OpKind::kGradSquares:
        return bit(grad_squares::kPartials);
      case OpKind::kMuonOrthogonalise:
        return bit(muon_orthogonalise::kWork);
      case OpKind::kAdafactorSums:
        return bit(adafactor_sums::kSums);
      case OpKind::kAdafactorChange:
        return bit(adafactor_change::kSums);
      default:
        return 0;
    }
  }

  // ---- copies of parameters in another tier
  /// Records for every buffer whether it is a persistent copy of a weight, refreshed by the update, or holds
  /// the gradient of one micro-batch before the host adds it. Found by following kCopy and kAddGrad, not by
  /// name, except the copy of a frozen embedding, which no operation refreshes.
  void find_copies_of_parameters() {
    if (const EmbeddingCopy table = embedding_copy(p_);
        table.host != kNoBuffer && p_.params.front().grad == kNoBuffer)
      original_of_[table.host] = table.device;
    const Section update = p_.section(SectionKind::kUpdate);
    for (std::uint32_t i = update.begin; i < update.end; ++i)
      if (const Op& o = p_.ops[i];
          o.kind == OpKind::kCopy &&
          params_.param_of(o[operand::copy::kFrom], ParamPart::kWeight) != UINT32_MAX)
        original_of_[o[operand::copy::kTo]] = o[operand::copy::kFrom];
    for (const Op& add : p_.ops)
      if (add.kind == OpKind::kAddGrad)
        original_of_[add[operand::add_grad::kPart]] = add[operand::add_grad::kGrad];
    for (const Op& o : p_.ops)
      if (o.kind == OpKind::kCopy && original_of_[o[operand::copy::kTo]] != kNoBuffer &&
          params_.param_of(original_of_[o[operand::copy::kTo]], ParamPart::kGrad) != UINT32_MAX)
        original_of_[o[operand::copy::kFrom]] = original_of_[o[operand::copy::kTo]];
  }
  /// The parameter buffer of which b is a copy, or b.
  BufferId original(BufferId b) const {
    if (b == kNoBuffer || params_.known(b)) return b;
    if (original_of_[b] != kNoBuffer) return original_of_[b];
    const Value v = contents(b);
    return v.quantity == Quantity::kWeightCopy ? p_.params[static_cast<std::size_t>(v.at)].weight : b;
  }
  Value& contents(BufferId b) { return contents_[arena_.index(b, instance_)]; }
  const Value& contents(BufferId b) const { return contents_[arena_.index(b, instance_)]; }
  void write(BufferId b) { arena_.write(b, i_, instance_); }

  // ---- operands
  BufferId in(In k) const { return (*o_)[k]; }
  BufferId out(Out k) const { return (*o_)[k]; }
  bool intact(BufferId b) {
    if (b == kNoBuffer || p_[b].storage == Storage::kExternal ||
        arena_.lost_to(b, instance_) == ArenaMap::kNone)
      return true;
    f_.at(i_, "reads " + p_[b].name() + ", whose bytes " + f_.where(arena_.lost_to(b, instance_)) +
                  " has overwritten");
    return false;
  }
  /// Input k must contain v, intact.
  void need(In k, Value v) { need_buffer(in(k), v); }
  void need_buffer(BufferId b, Value v) {
    if (p_[b].persistent || p_[b].storage == Storage::kExternal || contents(b).quantity == Quantity::kNothing)
      return f_.at(i_, "reads " + p_[b].name() + " before anything has written it");
    if (!(contents(b) == v))
      return f_.at(i_, "needs " + text(v) + " in " + p_[b].name() + ", which holds " + text(contents(b)));
    intact(b);
  }
  /// Output k contains v from now on.
  void give(Out k, Value v) {
    if (k.slot >= o_->outs) return;
    const BufferId b = out(k);
    if (p_[b].persistent || p_[b].storage == Storage::kExternal)
      return f_.at(i_,
                   "writes " + text(v) + " over " + p_[b].name() + ", which this operation must not write");
    contents(b) = v;
    write(b);
  }
  void scratch(In k) {
    const BufferId b = in(k);
    if (b == kNoBuffer) return;
    if (p_[b].persistent) return f_.at(i_, "uses " + p_[b].name() + " as scratch");
    for (std::uint8_t other = 0; other < o_->ins; ++other)
      if (other != k.slot && in(In{other}) == b)
        return f_.at(i_, "uses " + p_[b].name() + " as scratch and as another operand");
    contents(b) = {};
    write(b);
  }
  /// An optimizer whose other operands are persistent; their identity is checked in ParamRecord::update().
  void update_with_scratch(In work) {
    for (std::uint8_t k = 0; k < o_->ins; ++k)
      if (k != work.slot) intact(in(In{k}));
    scratch(work);
    params_.update(i_);
    for (BufferId b : o_->outputs()) write(b);
  }
  /// Input k must be a persistent buffer that is no parameter: table, scalars.
  void persistent(In k) {
    const BufferId b = in(k);
    if (!p_[b].persistent || params_.known(b))
      f_.at(i_, "finds " + p_[b].name() + " where a table or the scalars belong");
    intact(b);
  }
  /// Input k must be the host input of that role, if present.
  void host_input(In k, const char* role) {
    if (in(k) != kNoBuffer && p_[in(k)].role != std::string_view(role))
      f_.at(i_, "finds " + p_[in(k)].name() + " where " + role + " belong");
  }
  /// Input k must be the weight of this role and layer.
  void weight(In k, TensorRole role, std::int32_t layer, AdapterPart adapter = AdapterPart::kNone) {
    params_.expect(i_, original(in(k)), ParamPart::kWeight, role, layer, adapter);
    intact(in(k));
  }
  /// The operation adds to the gradient in slot k, or overwrites it.
  void contributes(In k, TensorRole role, std::int32_t layer, AdapterPart adapter = AdapterPart::kNone) {
    const BufferId b = in(k), of = original(b);
    params_.expect(i_, of, ParamPart::kGrad, role, layer, adapter);
    if (of != b) return part(b, of);
    const bool overwrite = (o_->flags & kFreshGrad) || ((o_->flags & kFirstWrite) && first_micro_);
    if (o_->flags & kFreshGrad) f_.at(i_, "overwrites " + p_[b].name() + " in every micro-batch");
    if (!overwrite) intact(b);
    params_.contribute(i_, b, o_->flags & kFirstWrite, first_micro_);
    write(b);
  }
  /// Whether the run trains the model's own tensor of that role.
  bool is_trained_role(TensorRole role, std::int32_t layer) const {
    if (p_.run.trainable.empty()) return !trains_adapters(p_.run);
    for (const TensorInfo& t : p_.tensor_infos)
      if (t.role == role && t.layer == layer && t.part == AdapterPart::kNone)
        return is_trained(p_.run, t.name);
    return false;
  }
  /// contributes() where the run trains the model's own weights; else the gradient must be absent.
  void contributes_unless_frozen(In k, TensorRole role, std::int32_t layer) {
    if (is_trained_role(role, layer)) {
      if (in(k) == kNoBuffer) return f_.at(i_, "omits the gradient of its weight");
      return contributes(k, role, layer);
    }
    if (in(k) != kNoBuffer) f_.at(i_, "computes the gradient of a frozen weight");
  }
  /// A gradient of this micro-batch alone.
  void part(BufferId b, BufferId of) {
    const Value v =
        value(Quantity::kGradPart, static_cast<std::int32_t>(params_.param_of(of, ParamPart::kGrad)));
    if (o_->flags & kFreshGrad)
      parts_[b] = 0;
    else if (contents(b) == v)
      intact(b);
    else
      f_.at(i_, "adds to " + p_[b].name() + ", which has no gradient of an earlier micro-batch");
    ++parts_[b];
    contents(b) = v;
    write(b);
  }

  // ---- tensor parallelism
  bool has_tensor_ranks() const { return p_.run.mode != RunMode::kInference && p_.run.parallel.tensor > 1; }
  /// v, of which every TP rank has a part.
  Value part_of_sum(Value v) const { return has_tensor_ranks() ? part_of_rank(v) : v; }
  /// Whether this rank adds to a sum over the TP ranks what all of them have.
  bool adds_to_sum() const { return !has_tensor_ranks() || p_.run.parallel.tensor_rank == 1; }
  /// True with sequence parallelism, in training.
  bool divides_rows() const {
    return has_tensor_ranks() && p_.run.parallel.sequence &&
           (o_->phase == kForward || o_->phase == kBackward);
  }
  /// v between the products, where with sequence parallelism each TP rank has its rows.
  Value own(Value v) const {
    v.own_rows = divides_rows();
    return v;
  }
  void among_tensor_ranks();
  void gather_rows(BufferId all);
  void take_rows();

  // ---- the parts of a layer
  TensorRole head_role() const { return p_.model.tied ? TensorRole::kEmbed : TensorRole::kHead; }
  Value qkv_before_rope(std::int32_t l) const {
    return value(p_.model.qk_norm ? Quantity::kQkvNormed : Quantity::kQkv, l);
  }

  /// The adapted matrices of the product of layer l with a weight of this role.
  AdapterBlocks adapters_of(TensorRole r, std::int32_t l) const {
    return adapter_blocks(p_.model, p_.run, adapter_group(r), l);
  }
  /// u, and du: of TP ranks parts of a sum where the product divides its inputs, or its outputs.
  Value inner(const Product& q, TensorRole r, std::int32_t l) const { return of_inputs(q, lora_inner(r, l)); }
  Value d_inner(const Product& q, TensorRole r, std::int32_t l) const {
    return of_outputs(q, grad(lora_inner(r, l)));
  }
  Value lora_inner(TensorRole r, std::int32_t l) const { return of_product(Quantity::kLoraInner, r, l); }
  /// True if the inputs of adapters are dropped here: in training alone.
  bool drops() const {
    return p_.run.memory.lora_dropout > 0 && (o_->phase == kForward || o_->phase == kBackward);
  }
  /// The input of the adapters of a product with input x.
  Value lora_input(TensorRole r, std::int32_t l, Value x) const {
    return drops() ? of_product(Quantity::kDropped, r, l) : x;
  }
  Value of_product(Quantity q, TensorRole r, std::int32_t l) const {
    return value(q, static_cast<std::int32_t>(adapted_product_number(p_.model, adapter_group(r), l)));
  }
  /// v, of which each TP rank has a part if the product divides its inputs, or for a gradient its outputs.
  Value of_inputs(const Product& q, Value v) const { return q.divides_inputs ? part_of_sum(v) : v; }
  Value of_outputs(const Product& q, Value v) const { return q.divides_inputs ? v : part_of_sum(v); }
  /// True if this product has magnitudes.
  bool has_magnitudes(TensorRole r, std::int32_t l) const {
    return p_.run.memory.dora && adapters_of(r, l).count > 0;
  }
  /// What B multiplies its part into, and receives as gradient: the output of the product, with DoRA the
  /// unscaled one.
  Value sum_with_adapters(TensorRole r, std::int32_t l, const Product& q) const {
    return has_magnitudes(r, l) ? of_product(Quantity::kUnscaled, r, l) : q.y;
  }
  /// The role of the matrix of an adapter, stacked with others of its product: of a tied head the
  /// embedding's.
  TensorRole matrix_of(TensorRole adapter) const {
    return adapter == TensorRole::kHead ? head_role() : first_matrix(adapter);
  }
  /// The role of the first matrix of the product, by which product() finds it; for adapters, whose first
  /// matrix may be another one.
  static TensorRole first_matrix(TensorRole r) {
    switch (adapter_group(r)) {
      case AdapterGroup::kQkv:
        return TensorRole::kQ;
      case AdapterGroup::kO:
        return TensorRole::kO;
      case AdapterGroup::kGateUp:
        return TensorRole::kGate;
      case AdapterGroup::kDown:
        return TensorRole::kDown;
      case AdapterGroup::kEmbed:
      case AdapterGroup::kHead:
        break;
    }
    return r;
  }
  /// The product whose A or B (`part`), or its gradient, is in slot k. False, with a finding, for other
  /// buffers.
  bool adapted_product(In k, AdapterPart part, Product& out, TensorRole& r, std::int32_t& l) {
    const BufferId b = original(in(k));
    r = params_.role(b), l = params_.layer(b);
    if (params_.adapter_part(b) == part) return product(first_matrix(r), l, out);
    const char* name = part == AdapterPart::kA ? "A of" : part == AdapterPart::kB ? "B of" : "magnitudes of";
    f_.at(i_, p_[in(k)].name() + " is not the " + name + " an adapter");
    return false;
  }

  /// Input, output, bias and residual of the product with a weight of this role. False for weights that are
  /// in no product: norms. The embedding and the head have operations of their own; here they are products of
  /// their adapters.
  bool product(TensorRole r, std::int32_t l, Product& out) const {
    switch (r) {
      case TensorRole::kQ:
        out = {value(Quantity::kNormed, 2 * l), value(Quantity::kQkv, l), TensorRole::kQBias};
        break;
      case TensorRole::kO:
        out = {value(Quantity::kAttnOut, l), value(Quantity::kResidual, 2 * l + 1), TensorRole::kOBias, true,
               value(Quantity::kResidual, 2 * l)};
        break;
      case TensorRole::kGate:
        out = {value(Quantity::kNormed, 2 * l + 1), value(Quantity::kGateUp, l), TensorRole::kGateBias};
        break;
      case TensorRole::kDown:
        out = {value(Quantity::kAct, l), value(Quantity::kResidual, 2 * l + 2), TensorRole::kDownBias, true,
               value(Quantity::kResidual, 2 * l + 1)};
        break;
      case TensorRole::kEmbed:
        out = {Value{}, value(Quantity::kResidual, 0), TensorRole::kEmbed};
        out.divides_inputs = true;
        break;
      case TensorRole::kHead:
        out = {value(Quantity::kNormed, 2 * layers_), value(Quantity::kLogits, 0), TensorRole::kHead};
        break;
      default:
        return false;
    }
    return true;
  }
  bool adapts_embedding() const { return adapters_of(TensorRole::kEmbed, -1).count > 0; }
  bool adapts_head() const { return adapters_of(TensorRole::kHead, -1).count > 0; }
  bool biased(TensorRole bias) const {
    const ModelSpec& m = p_.model;
    return bias == TensorRole::kQBias ? m.qkv_bias : bias == TensorRole::kOBias ? m.o_bias : m.mlp_bias;
  }
  /// Position, in half layers, of the norm whose weight or gradient b is; -1 for other buffers.
  std::int32_t norm_at(BufferId b) const {
    switch (params_.role(original(b))) {
      case TensorRole::kNorm1:
        return 2 * params_.layer(original(b));
      case TensorRole::kNorm2:
        return 2 * params_.layer(original(b)) + 1;
      case TensorRole::kFinalNorm:
        return 2 * layers_;
      default:
        return -1;
    }
  }

  /// Applies the rules of the current operation (check_ops.cpp).
  void apply();
  void forward_linear();
  void linear_dx();
  void linear_dw();
  void dropout();
  void linear_dx_add();
  void dequantize();
  void transpose();
  bool has_a_of_adapter(In k) const;
  bool a_of_adapter(In k, Product& out, TensorRole& r, std::int32_t& l);
  bool ties_adapter() const { return trainhost::ties_adapter(p_.run); }
  void lora_b();
  void lora_b_dx();
  void lora_b_dw();
  void muon();
  void muon_direction();
  void muon_orthogonalise();
  void adafactor();
  void adafactor_sums();
  void adafactor_change();
  void dora_scale();
  void dora_squares();
  void dora_factors();
  void dora();
  void dora_bwd();
  void rms_norm();
  void rms_norm_bwd();
  void embed();
  void embed_bwd();
  void head(bool trains);
  void adapter_of_head();
  void adapter_of_head_bwd(Out d_hf, Out d_u, Out d_dropped);
  TensorRole role_of_product(std::int32_t number) const;
  void qk_norm_bwd();
  void attention_step();
  void copy();
  void cross_entropy();
  void head_bwd();
  void add_grad();
  void cache(In k, Value v);
  void collective();
  void gather_shards(BufferId whole);
  void reduce_part(BufferId whole);
  void wait();
  void sum_scalars();

  const Program& p_;
  Findings& f_;
  ArenaMap arena_;
  ParamRecord params_;
  std::vector<Value> contents_;        // by ArenaMap::index(), transient buffers
  std::vector<BufferId> original_of_;  // by BufferId: the parameter buffer that it copies, or kNoBuffer
  std::vector<bool> in_flight_;        // by BufferId: a collective was started on it and not waited for
  std::vector<std::uint32_t> parts_;   // by BufferId: contributions to one micro-batch's gradient so far
  std::int32_t layers_;
  bool first_micro_ = true, last_micro_ = false;
  std::uint32_t heads_ = 0, instance_ = 0;
  std::uint32_t i_ = 0;
  const Op* o_ = nullptr;
};

}  // namespace trainhost::placement
