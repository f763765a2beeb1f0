// Rules that need more than one key: what contradicts what. Each key by itself was checked before.
#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "core/runfile/settings.hpp"

namespace trainhost::runfile {

/// Throws usage_error at the later of the contradicting keys, naming both.
void check_combinations(const Settings& s);

/// What the model's layers have to be able to do: interleaved chunks of equal size, groups of layers made
/// again together. `open`: keys that are not decided yet; what reads one of them is not judged.
void check_against_layers(const Settings& s, std::uint64_t layers, const std::set<std::string>& open);

/// optimizer.min_lr and optimizer.warmup_steps, whose defaults follow from other keys.
double min_lr(const Settings& s);
std::uint64_t warmup_steps(const Settings& s);

/// The inline model fields that were given: "hidden_size" for model.hidden_size, with nested ones dotted.
std::vector<std::string> inline_fields(const Settings& s);

}  // namespace trainhost::runfile
