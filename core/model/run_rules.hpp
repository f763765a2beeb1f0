// Contradictions between settings of a run that do not depend on the model. Used by the run file, which adds
// the line, and by planners, which vary runs without a file. Contradictions with the model (heads, experts,
// layers): validate() in core/parallel.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/model/run_spec.hpp"

namespace trainhost {

struct Conflict {
  std::string key;       // run-file key, "parallel.interleave"
  std::string sentence;  // with the key, its value and valid values
  std::string hint;      // may be ""
};

/// All conflicts. Counts of `r` that have no meaning for 0 are at least 1.
/// open: keys without a value yet (a search varies them); rules that read one of them are skipped.
std::vector<Conflict> find_conflicts(const RunSpec& r, const std::set<std::string>& open = {});
/// The first of them; nullopt if there is none.
std::optional<Conflict> find_conflict(const RunSpec& r, const std::set<std::string>& open = {});

/// "use 2 or 4": the divisors of `whole` nearest to `value`, which is not one. whole > 0. O(sqrt whole).
std::string nearest_divisors(std::uint64_t value, std::uint64_t whole);

}  // namespace trainhost
