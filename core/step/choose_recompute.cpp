// See choose_recompute.hpp.
#include "core/step/choose_recompute.hpp"

namespace trainhost::step {
namespace {

// Step i of the ladder: 0 keeps everything, 3 * layers recomputes everything.
RecomputeLayers ladder_step(std::uint32_t i, std::uint32_t layers) {
  if (i <= layers) return {0, 0, i};
  if (i <= 2 * layers) return {0, i - layers, 2 * layers - i};
  return {i - 2 * layers, 3 * layers - i, 0};
}

/// The smallest number in [0, most] that fits, given that `most` fits. Assumes that everything above a number
/// that fits also fits; where gaps of the placement break this, the result still fits.
std::uint32_t smallest_that_fits(std::uint32_t most, const std::function<bool(std::uint32_t)>& fits) {
  std::uint32_t low = 0, high = most;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

}  // namespace

RecomputeLayers choose_recompute(std::uint32_t layers,
                                 const std::function<bool(const RecomputeLayers&)>& fits) {
  const RecomputeLayers most = ladder_step(3 * layers, layers);
  if (fits(ladder_step(0, layers))) return {};
  if (!fits(most)) return most;
  RecomputeLayers n = ladder_step(
      smallest_that_fits(3 * layers, [&](std::uint32_t i) { return fits(ladder_step(i, layers)); }), layers);
  // Use a cheaper policy for as many layers as possible: first instead of mlp, then instead of selective.
  const std::uint32_t mlp = n.mlp, below = n.mlp + n.selective;
  if (mlp > 0) {
    n.mlp = smallest_that_fits(mlp, [&](std::uint32_t k) { return fits({n.full, k, below - k}); });
    n.selective = below - n.mlp;
  }
  n.selective = smallest_that_fits(n.selective, [&](std::uint32_t k) { return fits({n.full, n.mlp, k}); });
  return n;
}

RecomputeLayers choose_recompute(std::uint32_t layers, std::uint64_t budget, const Bytes& lower_bound,
                                 const Bytes& placed) {
  // Gaps differ little between neighbouring splits, so the second attempt nearly always fits.
  constexpr int kAttempts = 4;
  std::uint64_t budget_without_gaps = budget;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const RecomputeLayers n = choose_recompute(
        layers, [&](const RecomputeLayers& x) { return lower_bound(x) <= budget_without_gaps; });
    const std::uint64_t bound = lower_bound(n);
    if (bound > budget) return n;  // full recomputation in every layer does not fit either
    if (bound > budget_without_gaps) break;
    const std::uint64_t bytes = placed(n);
    if (bytes <= budget) return n;
    const std::uint64_t gaps = bytes - bound;
    budget_without_gaps = budget > gaps ? budget - gaps : 0;
  }
  return choose_recompute(
      layers, [&](const RecomputeLayers& x) { return lower_bound(x) <= budget && placed(x) <= budget; });
}

}  // namespace trainhost::step
