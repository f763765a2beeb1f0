// Why a search space is empty: the keys that the user has fixed, and the nearest values with which it is not.
#pragma once
#include <set>
#include <string>

#include "core/model/architecture.hpp"
#include "core/parallel/layout_space.hpp"

namespace trainhost::planning {

/// For a space without layouts: "no layout has parallel.pipeline = 4 and parallel.expert = 8 on 16 devices
/// with 16 sequences per step; use parallel.pipeline = 2, or parallel.expert = 4". Tries one key at a time,
/// and states the general rule where no single one is enough. fixed: keys of the run file whose axes have the
/// value of `space.base` alone.
std::string why_no_layout(const model::Architecture& a, const parallel::SearchSpace& space,
                          const std::set<std::string>& fixed);

}  // namespace trainhost::planning
