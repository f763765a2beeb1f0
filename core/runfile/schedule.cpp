// Learning rate as a function of the optimizer step. The trainer receives the value for each step and keeps
// no schedule. User documentation: [optimizer] in docs/run-file.md.
#include <algorithm>
#include <cmath>

#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

double lr_at(const OptimizerConfig& o, std::uint64_t t, std::uint64_t steps) {
  if (t < o.warmup_steps) return o.lr * static_cast<double>(t + 1) / static_cast<double>(o.warmup_steps);
  if (o.schedule == Schedule::kConstant) return o.lr;
  const std::uint64_t decay_steps = steps > o.warmup_steps ? steps - o.warmup_steps : 1;
  const double progress =
      std::min(1.0, static_cast<double>(t - o.warmup_steps) / static_cast<double>(decay_steps));
  const double decay = o.schedule == Schedule::kLinear ? 1 - progress : 0.5 * (1 + std::cos(kPi * progress));
  return o.min_lr + (o.lr - o.min_lr) * decay;
}

}  // namespace trainhost::runfile
