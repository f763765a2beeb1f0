// See check_params.hpp. Counts per parameter what a training step must do exactly once or twice:
// contributions to the gradient per micro-batch, entries in the norm and updates per optimizer step. The
// program is not trusted: violations become findings, and every index from it is checked before it is used.
#include "core/placement/check_params.hpp"

#include "core/model/tensor_parts.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"

namespace trainhost::placement {

/// entries_[b]: which part of which parameter buffer b is. A buffer in two parameters would be updated twice.
ParamRecord::ParamRecord(const Program& p, Findings& f)
    : p_(p), f_(f), entries_(p.buffers.size()), states_(p.params.size()) {
  const auto enter = [&](BufferId b, std::size_t param, ParamPart part) {
    if (b == kNoBuffer) return;
    if (known(b)) f_.add(p_[b].name() + " belongs to two parameters");
    entries_[b] = {static_cast<std::uint32_t>(param), part};
  };
  for (std::size_t i = 0; i < p.params.size(); ++i) {
    enter(p.params[i].weight, i, ParamPart::kWeight);
    enter(p.params[i].grad, i, ParamPart::kGrad);
    enter(p.params[i].m, i, ParamPart::kM);
    enter(p.params[i].v, i, ParamPart::kV);
    enter(p.params[i].master, i, ParamPart::kMaster);
  }
}

void ParamRecord::expect(std::uint32_t op, BufferId b, ParamPart part, TensorRole r, std::int32_t l,
                         AdapterPart adapter) {
  if (b >= entries_.size() || entry(b).part != part)
    return f_.at(op, "finds " + p_[b].name() + " where a " +
                         (part == ParamPart::kGrad ? "gradient" : "weight") + " belongs");
  if (role(b) != r || layer(b) != l || adapter_part(b) != adapter)
    f_.at(op, "finds " + p_[b].name() + " where another parameter belongs");
}

/// `first_write`: the operation overwrites instead of adding in the first micro-batch. Exactly one
/// contribution may do so, and it must be the first one in program order, as it would discard earlier ones.
void ParamRecord::contribute(std::uint32_t op, BufferId grad, bool first_write, bool first_micro) {
  if (entry(grad).part != ParamPart::kGrad) return;
  State& s = states_[entry(grad).param];
  if (s.reduced) f_.at(op, "adds to " + p_[grad].name() + " after the ranks have added up theirs");
  if (first_write && ++s.first_writes > 1)
    f_.at(op, "is a second first writer of " + p_[grad].name());
  else if (first_write && s.contributions > 0)
    f_.at(op, "overwrites " + p_[grad].name() + " after another operation added to it");
  if (!first_write && first_micro && !s.defined)
    f_.at(op, "adds to " + p_[grad].name() + " before its first write");
  s.defined = true;
  ++s.contributions;
}

/// With ZeRO 2 and 3 the sum of a micro-batch's gradient over the ranks. A tied matrix, or an adapter that
/// embedding and head share, gets two contributions, from the embedding and from the head; every other
/// parameter one.
std::uint32_t ParamRecord::contributions_wanted(std::size_t i) const {
  return zero() >= 2 ? 1 : writes_wanted(i);
}
std::uint32_t ParamRecord::writes_wanted(std::size_t i) const {
  const BufferId grad = p_.params[i].grad;
  if (role(grad) != TensorRole::kEmbed || adapter_part(grad) == AdapterPart::kMagnitude) return 1;
  const bool adapter = adapter_part(grad) != AdapterPart::kNone;
  return (adapter ? ties_adapter(p_.run) : p_.model.tied) ? 2 : 1;
}

void ParamRecord::end_of_micro() {
  if (micro_sums_ != (has_ranks() || has_tensor_ranks() ? 1u : 0u))
    f_.add("the ranks add up their targets " + std::to_string(micro_sums_) + " times per micro-batch");
  micro_sums_ = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& s = states_[i];
    if (p_.params[i].grad == kNoBuffer) continue;
    const std::uint32_t wanted = contributions_wanted(i);
    if (s.contributions != wanted)
      f_.add(gradient(i) + " gets " + std::to_string(s.contributions) +
             " contributions per micro-batch, expected " + std::to_string(wanted));
    if (s.first_writes == 0) f_.add(gradient(i) + " has no first writer");
    // Counts are per micro-batch; `defined` stays until the update consumes the gradient.
    s.contributions = s.first_writes = 0;
  }
}

/// The norm needs all gradients before the first update, because the clipping factor depends on it.
void ParamRecord::squares(std::uint32_t op, BufferId grad) {
  if (entry(grad).part != ParamPart::kGrad)
    return f_.at(op, "squares " + p_[grad].name() + ", which is not a gradient");
  State& s = states_[entry(grad).param];
  if (any_update_) f_.at(op, "adds to the norm after a parameter was updated by it");
  if (has_ranks() && zero() < 2 && s.reduced != 1)
    f_.at(op, "squares " + p_[grad].name() + " of this rank alone");
  if (has_part_of_gradient(entry(grad).param) && s.tensor_sums != 1)
    f_.at(op, "squares " + p_[grad].name() + " of this TP rank alone");
  if (sums_) f_.at(op, "adds to the norm after the ranks have added up theirs");
  if (!s.defined) f_.at(op, "reads " + p_[grad].name() + " before anything has written it");
  ++s.squares;
}

/// The operation of an optimizer for one parameter. Muon updates matrices of layers, 8-bit AdamW parameters
/// with a tensor of at least 4,096 elements; AdamW updates the rest.
OpKind ParamRecord::kind_of(Optimizer wanted, const Param& q) const {
  switch (wanted) {
    case Optimizer::kAdamW:
      break;
    case Optimizer::kSgd:
      return OpKind::kSgd;
    case Optimizer::kSgdMomentum:
      return OpKind::kSgdMomentum;
    case Optimizer::kLion:
      return OpKind::kLion;
    case Optimizer::kAdafactor:
      return OpKind::kAdafactor;
    case Optimizer::kMuon:
      if (tensor(q.weight).rank > 1 && tensor(q.weight).layer >= 0) return OpKind::kMuon;
      break;
    case Optimizer::kAdamW8bit:
      for (const Slice& s : q.slices)
        if (elements_of_whole(p_.tensor_infos[s.tensor], p_.run.parallel) >= 4096) return OpKind::kAdamW8bit;
      break;
  }
  return OpKind::kAdamW;
}

bool ParamRecord::is_divided(std::size_t param) const {
  return has_tensor_ranks() &&
         division_of(p_.tensor_infos[p_.params[param].slices.front().tensor]) != Division::kNone;
}

/// The first part of an update by Muon.
std::uint32_t ParamRecord::direction(std::uint32_t op) {
  using namespace operand;
  const Op& o = p_.ops[op];
  any_update_ = true;
  if ((has_ranks() || has_tensor_ranks()) && sums_ != 1) f_.at(op, "updates by the norm of this rank alone");
  const std::uint32_t i = param_of(o[muon_direction::kGrad], ParamPart::kGrad);
  if (i == UINT32_MAX)
    return f_.at(op, "finds " + p_[o[muon_direction::kGrad]].name() + " where a gradient belongs"), i;
  const Param& q = p_.params[i];
  if (kind_of(p_.run.optimizer, q) != OpKind::kMuon) f_.at(op, "is not the optimizer of the run");
  if (o[muon_direction::kM] != q.m)
    f_.at(op, "finds " + p_[o[muon_direction::kM]].name() + " where the momentum of " + p_[q.weight].name() +
                  " belongs");
  if (!states_[i].defined) f_.at(op, "reads " + p_[q.grad].name() + " before anything has written it");
  if (known(o[muon_direction::kScalars]) || !p_[o[muon_direction::kScalars]].persistent)
    f_.at(op, "finds " + p_[o[muon_direction::kScalars]].name() + " where the scalars belong");
  if (++states_[i].directions > 1) f_.at(op, "changes " + p_[q.m].name() + " a second time");
  return i;
}

/// The parts of an update by Adafactor before kAdafactor, each once.
std::uint32_t ParamRecord::factors(std::uint32_t op) {
  using namespace operand;
  const Op& o = p_.ops[op];
  const bool sums = o.kind == OpKind::kAdafactorSums;
  any_update_ = true;
  if (sums_ != 1) f_.at(op, "updates by the norm of this rank alone");
  const std::uint32_t i = param_of(o[adafactor_sums::kGrad], ParamPart::kGrad);
  if (i == UINT32_MAX)
    return f_.at(op, "finds " + p_[o[adafactor_sums::kGrad]].name() + " where a gradient belongs"), i;
  const Param& q = p_.params[i];
  State& s = states_[i];
  if (kind_of(p_.run.optimizer, q) != OpKind::kAdafactor) f_.at(op, "is not the optimizer of the run");
  if (!is_divided(i)) f_.at(op, "adds up what every TP rank has");
  const bool by_columns = division_of(p_.tensor_infos[q.slices.front().tensor]) == Division::kColumns;
  const BufferId own = by_columns ? q.v : q.m, other = by_columns ? q.m : q.v;
  const bool same = sums ? o[adafactor_sums::kWeight] == q.weight && o[adafactor_sums::kOwn] == own &&
                               o[adafactor_sums::kMaster] == q.master
                         : o[adafactor_change::kOwn] == own && o[adafactor_change::kOther] == other;
  if (!same) f_.at(op, "updates " + p_[q.weight].name() + " with buffers of another parameter");
  if (!s.defined) f_.at(op, "reads " + p_[q.grad].name() + " before anything has written it");
  std::uint32_t& times = sums ? s.factored : s.changes;
  if (++times > 1) f_.at(op, "changes the means of " + p_[q.weight].name() + " a second time");
  return i;
}

/// Every operand must belong to the same parameter: buffers of equal shape are interchangeable for the shape
/// check, so only identity finds a mix-up.
void ParamRecord::update(std::uint32_t op) {
  using namespace operand;
  const Op& o = p_.ops[op];
  any_update_ = true;
  if ((has_ranks() || has_tensor_ranks()) && sums_ != 1) f_.at(op, "updates by the norm of this rank alone");
  if (entry(o[optimizer::kGrad]).part != ParamPart::kGrad)
    return f_.at(op, "finds " + p_[o[optimizer::kGrad]].name() + " where a gradient belongs");
  const std::uint32_t i = entry(o[optimizer::kGrad]).param;
  const Param& q = p_.params[i];
  State& s = states_[i];
  ++s.updates;
  if (!s.defined) f_.at(op, "reads " + p_[q.grad].name() + " before anything has written it");
  const Optimizer wanted = p_.run.optimizer;
  const OpKind kind = kind_of(wanted, q);
  if (o.kind != kind) return f_.at(op, "is not the optimizer of the run");
  const bool m = kind != OpKind::kSgd,
             v = kind == OpKind::kAdamW || kind == OpKind::kAdamW8bit || kind == OpKind::kAdafactor;
  static_assert(adafactor::kColumns.slot == adamw::kV.slot && adafactor::kRows.slot == optimizer::kM.slot);
  if (o[optimizer::kWeight] != q.weight || (m && o[optimizer::kM] != q.m) || (v && o[adamw::kV] != q.v))
    f_.at(op, "updates " + p_[q.weight].name() + " with buffers of another parameter");
  const BufferId scalars = o[optimizer::scalars(kind)];
  if (o[optimizer::master(kind)] != q.master)
    f_.at(op, "updates " + p_[q.weight].name() + " without its own master copy");
  if (known(scalars) || !p_[scalars].persistent)
    f_.at(op, "finds " + p_[scalars].name() + " where the scalars belong");
  if (((o.flags & kDecay) != 0) != (tensor(q.weight).rank > 1))
    f_.at(op, "weight decay is for tensors of two or more dimensions");
}

std::uint64_t ParamRecord::shard_count(std::size_t i) const {
  const Parallelism& r = p_.run.parallel;
  std::uint64_t n = 0;
  for (const Slice& s : p_.params[i].slices) n += p_.tensor_infos[s.tensor].elements();
  if (r.data == 1) return n;
  const std::uint64_t each = ((n + r.data - 1) / r.data + 15) / 16 * 16, before = each * (r.data_rank - 1);
  return before >= n ? 0 : std::min(each, n - before);
}

/// Once per update, when the gradient of all micro-batches is complete. ZeRO needs the shard alone.
void ParamRecord::reduce(std::uint32_t op, BufferId grad) {
  if (entry(grad).part != ParamPart::kGrad)
    return f_.at(op, "reduces " + p_[grad].name() + ", which is not a gradient");
  State& s = states_[entry(grad).param];
  if (s.contributions != contributions_wanted(entry(grad).param))
    f_.at(op, "reduces " + p_[grad].name() + " before it is complete");
  if (++s.reduced > 1) f_.at(op, "reduces " + p_[grad].name() + " a second time");
  if ((p_.ops[op].kind == OpKind::kReduceScatter) != (p_.run.parallel.zero > 0))
    f_.at(op, "is not the reduction of the run's ZeRO stage");
}

/// Under ZeRO, after the rank's own shard was updated.
void ParamRecord::gather(std::uint32_t op, BufferId weight) {
  if (entry(weight).part != ParamPart::kWeight)
    return f_.at(op, "gathers " + p_[weight].name() + ", which is not a weight");
  const std::uint32_t i = entry(weight).param;
  State& s = states_[i];
  if (p_.run.parallel.zero == 0) f_.at(op, "gathers weights that every rank has updated");
  if (s.updates == 0 && shard_count(i) > 0) f_.at(op, "gathers " + p_[weight].name() + " before its update");
  ++s.gathered;
}

/// B and magnitudes of a product that divides its outputs, A of one that divides its inputs, as the embedding
/// does.
bool ParamRecord::is_divided_factor(std::size_t i) const {
  const TensorRole r = role(p_.params[i].weight);
  const bool of_inputs = r == TensorRole::kO || r == TensorRole::kDown || r == TensorRole::kEmbed;
  return (adapter_part(p_.params[i].weight) == AdapterPart::kA) == of_inputs;
}

bool ParamRecord::has_part_of_gradient(std::size_t i) const {
  const TensorRole r = role(p_.params[i].weight);
  if (adapter_part(p_.params[i].weight) != AdapterPart::kNone)
    return has_tensor_ranks() && !is_divided_factor(i);
  const bool of_heads = r == TensorRole::kQNorm || r == TensorRole::kKNorm,
             of_rows = r == TensorRole::kNorm1 || r == TensorRole::kNorm2 || r == TensorRole::kFinalNorm;
  return has_tensor_ranks() && (of_heads || (of_rows && p_.run.parallel.sequence));
}

/// After the DP ranks have, whose sum may be a shard; before the norm.
void ParamRecord::sum_over_tensor_ranks(std::uint32_t op, BufferId grad) {
  if (entry(grad).part != ParamPart::kGrad || !has_part_of_gradient(entry(grad).param))
    return f_.at(op, "adds up " + p_[grad].name() + ", which is the same on all TP ranks, or a part");
  State& s = states_[entry(grad).param];
  if (has_ranks() && zero() < 2 && s.reduced != 1)
    f_.at(op, "adds up " + p_[grad].name() + " of this rank alone");
  if (s.squares) f_.at(op, "adds up " + p_[grad].name() + " after it has entered the norm");
  ++s.tensor_sums;
}

void ParamRecord::sum_scalars(std::uint32_t op, bool in_update) {
  if (!has_ranks() && !has_tensor_ranks()) f_.at(op, "is a collective in a run of one rank");
  if (!in_update) {
    ++micro_sums_;
    for (const State& s : states_)
      if (s.contributions) return f_.at(op, "agrees with the other ranks after gradients were computed");
    return;
  }
  if (any_update_) f_.at(op, "adds up the norm after a parameter was updated by it");
  ++sums_;
}

/// After the update a new optimizer step begins: nothing is defined, and all counts are 0.
void ParamRecord::end_of_update() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& s = states_[i];
    if (p_.params[i].grad == kNoBuffer) continue;
    // What every TP rank has whole enters the norm once, on the first of them.
    const TensorRole r = role(p_.params[i].weight);
    const bool whole = adapter_part(p_.params[i].weight) != AdapterPart::kNone
                           ? !is_divided_factor(i)
                           : r == TensorRole::kNorm1 || r == TensorRole::kNorm2 ||
                                 r == TensorRole::kFinalNorm || r == TensorRole::kQNorm ||
                                 r == TensorRole::kKNorm || r == TensorRole::kOBias ||
                                 r == TensorRole::kDownBias;
    const bool counts = !whole || !has_tensor_ranks() || p_.run.parallel.tensor_rank == 1;
    const std::uint32_t has = shard_count(i) > 0, squares = has && counts, updates = zero() == 0 || has;
    if (s.tensor_sums != (has_part_of_gradient(i) ? 1u : 0u))
      f_.add(gradient(i) + " is added up over the TP ranks " + std::to_string(s.tensor_sums) + " times");
    if (s.squares != squares)
      f_.add(gradient(i) + " enters the norm " + std::to_string(s.squares) + " times");
    if (s.reduced != (has_ranks() && zero() < 2 ? 1u : 0u))
      f_.add(gradient(i) + " is added up over the ranks " + std::to_string(s.reduced) + " times");
    if (s.gathered != (zero() == 1 || zero() == 2 ? 1u : 0u))
      f_.add(p_[p_.params[i].weight].name() + " is gathered " + std::to_string(s.gathered) + " times");
    if (s.updates != updates)
      f_.add(p_[p_.params[i].weight].name() + " is updated " + std::to_string(s.updates) +
             " times per update, expected " + std::to_string(updates));
    s = {};
  }
  any_update_ = false, sums_ = 0;
}

}  // namespace trainhost::placement
