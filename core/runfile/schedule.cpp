// The learning rate as a function of the update's number. Pure; the trainer is told the value and keeps no
// schedule. Documented for users in the run file's [optimizer] table.
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
  const std::uint64_t rest = steps > o.warmup_steps ? steps - o.warmup_steps : 1;
  const double f = std::min(1.0, static_cast<double>(t - o.warmup_steps) / static_cast<double>(rest));
  const double left = o.schedule == Schedule::kLinear ? 1 - f : 0.5 * (1 + std::cos(kPi * f));
  return o.min_lr + (o.lr - o.min_lr) * left;
}

}  // namespace trainhost::runfile
