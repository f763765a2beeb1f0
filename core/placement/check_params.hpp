// The checker's record of parameters: which buffer is the weight, gradient or moment of which tensor, how
// often each gradient was written in this micro-batch, and what the update did. Reports omissions when a
// section ends.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/placement/check_findings.hpp"

namespace trainhost::placement {

enum class ParamPart : std::uint8_t { kNone, kWeight, kGrad, kM, kV, kMaster };

class ParamRecord {
 public:
  ParamRecord(const Program& p, Findings& f);

  /// The parameter of which b is `part`, or UINT32_MAX.
  std::uint32_t param_of(BufferId b, ParamPart part) const {
    return entry(b).part == part ? entry(b).param : UINT32_MAX;
  }
  bool known(BufferId b) const { return entry(b).part != ParamPart::kNone; }
  /// Role and layer of the first tensor in b; kHead and -1 if b belongs to no parameter.
  TensorRole role(BufferId b) const { return known(b) ? tensor(b).role : TensorRole::kHead; }
  /// Of the first tensor in b; kNone if b belongs to no parameter.
  AdapterPart adapter_part(BufferId b) const { return known(b) ? tensor(b).part : AdapterPart::kNone; }
  std::int32_t layer(BufferId b) const { return known(b) ? tensor(b).layer : -1; }

  void expect(std::uint32_t op, BufferId b, ParamPart part, TensorRole role, std::int32_t layer,
              AdapterPart adapter = AdapterPart::kNone);
  void contribute(std::uint32_t op, BufferId grad, bool first_write, bool first_micro);
  void end_of_micro();
  void squares(std::uint32_t op, BufferId grad);
  /// Of kMuonDirection: the parameter; UINT32_MAX, with a finding, if its operands are not those of one.
  std::uint32_t direction(std::uint32_t op);
  std::uint32_t factors(std::uint32_t op);
  /// True if each TP rank has a part of the matrices of a parameter.
  bool is_divided(std::size_t param) const;
  void update(std::uint32_t op);
  /// A sum of gradients over the ranks starts; weights are gathered; scalars are summed.
  void reduce(std::uint32_t op, BufferId grad);
  void gather(std::uint32_t op, BufferId weight);
  /// The TP ranks add up a gradient of which each has a part.
  void sum_over_tensor_ranks(std::uint32_t op, BufferId grad);
  /// Contributions to the gradient of a parameter in a micro-batch, on one rank.
  std::uint32_t writes_wanted(std::size_t param) const;
  void sum_scalars(std::uint32_t op, bool in_update);
  void end_of_update();

 private:
  struct Entry {
    std::uint32_t param = 0;
    ParamPart part = ParamPart::kNone;
  };
  struct State {
    bool defined = false;                                      // holds this update's gradient
    std::uint32_t contributions = 0, first_writes = 0;         // in this micro-batch
    std::uint32_t squares = 0, updates = 0;                    // in this update
    std::uint32_t directions = 0;                              // likewise, of Muon in parts
    std::uint32_t factored = 0, changes = 0;                   // likewise, of Adafactor in parts
    std::uint32_t reduced = 0, gathered = 0, tensor_sums = 0;  // likewise, of several ranks
  };
  const Entry& entry(BufferId b) const { return entries_[b]; }
  const TensorInfo& tensor(BufferId b) const {
    return p_.tensor_infos[p_.params[entry(b).param].slices.front().tensor];
  }
  OpKind kind_of(Optimizer wanted, const Param& q) const;
  std::uint32_t zero() const { return p_.run.parallel.zero; }
  bool has_ranks() const { return p_.run.parallel.data > 1; }
  bool has_tensor_ranks() const { return p_.run.parallel.tensor > 1 && p_.run.mode != RunMode::kInference; }
  /// True if a TP rank has a part of the gradient of a tensor that every TP rank has whole: of a q or k norm
  /// that of its heads, of the other norms with sequence parallelism that of its rows, and of a tensor of an
  /// adapter that is not divided.
  bool has_part_of_gradient(std::size_t param) const;
  /// True for the tensors (A, B, magnitudes) of an adapter of which each TP rank has a part.
  bool is_divided_factor(std::size_t param) const;
  /// Elements of the parameter in the shard of this rank: equal ranges in multiples of 16.
  std::uint64_t shard_count(std::size_t param) const;
  std::uint32_t contributions_wanted(std::size_t param) const;
  std::string gradient(std::size_t param) const { return p_[p_.params[param].grad].name(); }

  const Program& p_;
  Findings& f_;
  std::vector<Entry> entries_;  // by BufferId
  std::vector<State> states_;   // by parameter
  bool any_update_ = false;
  // Scalars summed over the ranks: before this micro-batch, and in this update.
  std::uint32_t micro_sums_ = 0, sums_ = 0;
};

}  // namespace trainhost::placement
