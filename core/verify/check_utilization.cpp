// GPU-004: utilization above 0.70 for a 350M model with four sequences per step. Utilization is the time in
// which the kernel queue waits for no other queue (events of the trainer) divided by the wall time of the steps
// (host clock). It is an upper bound of the time in which kernels run, because gaps between kernels count;
// tools/gpu/accept --only hybrid measures without them.
#include <fmt/format.h>

#include "core/verify/contract_table.hpp"
#include "core/verify/hybrid_measurement.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

constexpr double kUtilizationBound = 0.70;

}  // namespace

Result check_utilization(Context& context) {
  return run_once([&] {
    const HybridMeasurement& f = context.hybrid();
    const double u = f.utilization();
    const std::string text = fmt::format(
        "kernels ran {:.1f} % of the time of {} (exposed transfers {:.1f} %)", 100 * u, f.describe(),
        100 * static_cast<double>(f.counted.exposed_transfer_ns) / static_cast<double>(f.wall_ns));
    // The bound is stated for 350M parameters, so a smaller model cannot falsify it.
    if (!f.is_350m && u <= kUtilizationBound)
      throw CheckSkipped(text +
                         fmt::format("; the bound {:g} is stated for 350M parameters", kUtilizationBound));
    // Two clocks are compared: slightly above 1 is a reading error, more means time counted twice.
    if (u > 1.02) return Finding{false, u, 1, text + "; more than 100 %: the trainer counts time twice"};
    return Finding{u > kUtilizationBound, u, kUtilizationBound, text};
  });
}

}  // namespace trainhost::verify
