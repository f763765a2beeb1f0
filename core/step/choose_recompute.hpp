// Searches for the least recomputation that fits a memory budget, by number of layers and by kind. Does not
// compute memory itself: the caller passes functions that do.
#pragma once
#include <cstdint>
#include <functional>

#include "core/model/run_spec.hpp"

namespace trainhost::step {

/// How many of `layers` layers use each recompute policy. Finds the first step that `fits` on a ladder of
/// 3 x layers steps (one layer after the other becomes selective, then mlp, then full; each step costs more
/// time per byte saved than the one before), then reduces recomputation again as far as it still fits.
/// `fits` is called about 4 log2(layers) times. If nothing fits, every layer is full, which needs the least
/// memory.
RecomputeLayers choose_recompute(std::uint32_t layers,
                                 const std::function<bool(const RecomputeLayers&)>& fits);

/// The same search with few placements. `lower_bound`: arena bytes that no placement can go below
/// (least_arena.hpp); `placed`: arena bytes of a placement, called once if the placement meets the bound,
/// otherwise once or twice more with the bytes lost to gaps subtracted from the budget. Both must not
/// decrease with less recomputation. The result fits `budget` by `placed`, unless nothing does.
using Bytes = std::function<std::uint64_t(const RecomputeLayers&)>;
RecomputeLayers choose_recompute(std::uint32_t layers, std::uint64_t budget, const Bytes& lower_bound,
                                 const Bytes& placed);

}  // namespace trainhost::step
