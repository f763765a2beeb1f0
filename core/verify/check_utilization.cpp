// GPU-004: utilization above 0.70 for a 350M model with four sequences a step: the time in which at least one
// compute kernel runs, by the trainer's own events, over the wall time of the steps, by our clock.
#include <fmt/format.h>

#include "core/verify/gpu_checks.hpp"
#include "core/verify/hybrid_measurement.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

constexpr double kUtilizationBound = 0.70;

}  // namespace

Result check_utilization(Context& context) {
  return once([&] {
    const HybridFigures& f = context.hybrid();
    const double u = f.utilization();
    const std::string text = fmt::format(
        "kernels ran {:.1f} % of the time over {} (exposed transfers {:.1f} %)", 100 * u, f.words(),
        100 * static_cast<double>(f.counted.exposed_transfer_ns) / static_cast<double>(f.wall_ns));
    // The bound is stated for 350M: a small model that stays under it has broken nothing.
    if (!f.is_350m && u <= kUtilizationBound)
      throw NotJudged(text + fmt::format("; the bound of {:g} holds from 350M up", kUtilizationBound));
    // Two clocks: a little over all of the time is a reading error, more is time counted twice.
    if (u > 1.02) return Finding{false, u, 1, text + "; more than all of it: the trainer counts time twice"};
    return Finding{u > kUtilizationBound, u, kUtilizationBound, text};
  });
}

}  // namespace trainhost::verify
