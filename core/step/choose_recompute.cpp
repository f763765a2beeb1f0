// See choose_recompute.hpp.
#include "core/step/choose_recompute.hpp"

namespace trainhost::step {
namespace {

// Step i of the ladder: 0 keeps everything, 3 * layers is full everywhere.
RecomputeLayers step(std::uint32_t i, std::uint32_t layers) {
  if (i <= layers) return {0, 0, i};
  if (i <= 2 * layers) return {0, i - layers, 2 * layers - i};
  return {i - 2 * layers, 3 * layers - i, 0};
}

/// The least number in [0, most] that fits, given that `most` does. What fits at n is taken to fit above n;
/// where that does not hold (placement leaves holes), the answer still fits.
std::uint32_t least(std::uint32_t most, const std::function<bool(std::uint32_t)>& fits) {
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
  const RecomputeLayers most = step(3 * layers, layers);
  if (fits(step(0, layers))) return {};
  if (!fits(most)) return most;
  RecomputeLayers n = step(least(3 * layers, [&](std::uint32_t i) { return fits(step(i, layers)); }), layers);
  // Cheaper kinds for the last layers: products first, then the rest.
  const std::uint32_t mlp = n.mlp, below = n.mlp + n.selective;
  if (mlp > 0) {
    n.mlp = least(mlp, [&](std::uint32_t k) { return fits({n.full, k, below - k}); });
    n.selective = below - n.mlp;
  }
  n.selective = least(n.selective, [&](std::uint32_t k) { return fits({n.full, n.mlp, k}); });
  return n;
}

RecomputeLayers choose_recompute(std::uint32_t layers, std::uint64_t budget, const Bytes& least,
                                 const Bytes& placed) {
  constexpr int kTurns = 4;  // holes differ little from one split to the next: the second nearly always fits
  std::uint64_t room = budget;
  for (int turn = 0; turn < kTurns; ++turn) {
    const RecomputeLayers n =
        choose_recompute(layers, [&](const RecomputeLayers& x) { return least(x) <= room; });
    const std::uint64_t bound = least(n);
    if (bound > budget) return n;  // everything, and even that is too much
    if (bound > room) break;
    const std::uint64_t bytes = placed(n);
    if (bytes <= budget) return n;
    const std::uint64_t holes = bytes - bound;
    room = budget > holes ? budget - holes : 0;
  }
  return choose_recompute(
      layers, [&](const RecomputeLayers& x) { return least(x) <= budget && placed(x) <= budget; });
}

}  // namespace trainhost::step
