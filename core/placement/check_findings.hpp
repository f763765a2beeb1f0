// The list of violated facts that the parts of the checker fill, one sentence each, and names of operations.
// Part of the checker: includes nothing of the builders, the placer or the lifetimes.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "core/step/program.hpp"

namespace trainhost::placement {

class Findings {
 public:
  explicit Findings(const Program& p) : p_(p) {}

  void add(std::string sentence) {
    if (list_.size() < kMaxFindings && std::find(list_.begin(), list_.end(), sentence) == list_.end())
      list_.push_back(std::move(sentence));
  }
  void at(std::uint32_t op, const std::string& what) { add(where(op) + ": " + what); }

  bool none() const { return list_.empty(); }
  std::vector<std::string> take() { return std::move(list_); }

  /// "op 45 linear_dw of layer 1"
  std::string where(std::uint32_t op) const {
    const Op& o = p_.ops[op];
    std::string s = "op " + std::to_string(op) + " ";
    s += o.kind < OpKind::kCount_ ? op_info(o.kind).name : "unknown";
    if (o.layer >= 0) s += " of layer " + std::to_string(o.layer);
    return s;
  }

 private:
  static constexpr std::size_t kMaxFindings = 200;  // more would not help the reader
  const Program& p_;
  std::vector<std::string> list_;
};

// The parts of the checker, in the order in which they run; each relies on the facts checked before.
/// Sections, operand counts and ids, in-place operands, parameters and their slices.
void check_structure(const Program& p, Findings& f);
/// Rows, columns and types of every operand, from the model's dimensions.
void check_shapes(const Program& p, Findings& f);

}  // namespace trainhost::placement
