// Contradictions between settings of a run that do not depend on the model. Used by the run file, which adds
// the line, and by planners, which vary runs without a file. Contradictions with the model (heads, experts,
// layers): validate() in core/parallel.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/model/run_spec.hpp"

namespace trainhost {

namespace model {
struct Architecture;
}

struct Conflict {
  std::string key;       // run-file key, "parallel.interleave"
  std::string sentence;  // with the key, its value and valid values
  std::string hint;      // may be ""
};

/// All conflicts. Counts of `r` that have no meaning for 0 are at least 1.
/// open: keys without a value yet (a search varies them); rules that read one of them are skipped.
/// experts: experts_of() the model, for hints that its experts allow; 0: not known.
std::vector<Conflict> find_conflicts(const RunSpec& r, const std::set<std::string>& open = {},
                                     std::uint64_t experts = 0);

/// The greatest common divisor of the numbers of experts of all layers; 0 without any.
std::uint64_t experts_of(const model::Architecture& a);

/// Groups of ranks over which experts can be divided: data x context ranks, with plan.expert_tensor also the
/// tensor ranks, divided by it.
std::uint64_t expert_groups(const Parallelism& p);

/// "use 2 or 4": the divisors of `whole` nearest to `value`, which is not one. whole > 0. O(sqrt whole).
std::string nearest_divisors(std::uint64_t value, std::uint64_t whole);

}  // namespace trainhost
