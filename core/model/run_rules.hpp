// What a run's settings say against each other, whatever the model: one table for the run file, which adds
// the line, and for planners, which vary runs without a file. What needs the model too (heads, experts,
// layers) is core/parallel's validate().
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "core/model/run_spec.hpp"

namespace trainhost {

struct Clash {
  std::string key;       // of the run file: "parallel.interleave"
  std::string sentence;  // names the key, its value and what would do
  std::string hint;      // "" where the sentence says it
};

/// The first that does not go together; nullopt where all does. Every number of `r` is at least 1 where 0 has
/// no meaning. `open`: keys that nobody has decided yet, as a search's; what reads one of them is not judged.
std::optional<Clash> clash_of(const RunSpec& r, const std::set<std::string>& open = {});

/// "2 or 4 do": the divisors of whole nearest to one that is none. whole > 0. O(sqrt whole).
std::string nearest_divisors(std::uint64_t value, std::uint64_t whole);

}  // namespace trainhost
