// The least recomputation that fits a budget, by layer and by kind. Knows nothing of memory: the caller says
// what fits.
#pragma once
#include <cstdint>
#include <functional>

#include "core/model/run_spec.hpp"

namespace trainhost::step {

/// Which of `layers` layers recompute what. Climbs a ladder of 3 x layers steps (every layer selective, one
/// after the other, then mlp, then full; each step costs more for the bytes that it saves than the one
/// before) to the first step that `fits`, then takes back what the last step saved too much. `fits` is asked
/// some 4 log2(layers) times. Where nothing fits: full in every layer, the least memory there is.
RecomputeLayers choose_recompute(std::uint32_t layers,
                                 const std::function<bool(const RecomputeLayers&)>& fits);

/// The same search where most layers need not be placed. `least`: bytes below which no placement lies
/// (least_arena.hpp); `placed`: bytes of a placement, asked once where it meets that bound and otherwise once
/// or twice more, with what holes take set aside. Both never say less for less recomputation. The answer fits
/// `budget` by `placed`, unless nothing does.
using Bytes = std::function<std::uint64_t(const RecomputeLayers&)>;
RecomputeLayers choose_recompute(std::uint32_t layers, std::uint64_t budget, const Bytes& least,
                                 const Bytes& placed);

}  // namespace trainhost::step
