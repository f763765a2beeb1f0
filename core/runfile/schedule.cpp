// The learning rate of every step: linear warm-up, then the schedule. Functions of the step alone, so a
// resumed run needs no state. After warm-up the values are those of transformers' get_scheduler() and
// get_wsd_schedule() with the same lr; warm-up is one step ahead of theirs, whose first step has a learning
// rate of 0 and changes nothing.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {

std::uint64_t default_warmup_steps(std::uint64_t steps) { return std::min<std::uint64_t>(300, steps / 10); }

std::uint64_t part_of_steps(double ratio, std::uint64_t steps) {
  assert(ratio >= 0 && ratio <= 1);
  return std::min(steps, static_cast<std::uint64_t>(std::ceil(static_cast<double>(steps) * ratio)));
}

void set_steps(RunConfig& c, std::uint64_t steps) {
  c.steps = steps;
  OptimizerConfig& o = c.optimizer;
  if (!c.given.count("optimizer.warmup_steps"))
    o.warmup_steps = o.warmup_ratio ? part_of_steps(*o.warmup_ratio, steps) : default_warmup_steps(steps);
  if (!c.given.count("optimizer.decay_steps"))
    o.decay_steps = part_of_steps(o.decay_ratio.value_or(kDefaultDecayRatio), steps);
}

namespace {

/// The part of lr - min_lr that remains after the part x, from 0 to 1, of a decay.
double remaining(Decay decay, double x) {
  switch (decay) {
    case Decay::kLinear:
      return 1 - x;
    case Decay::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * x));
    case Decay::kOneMinusSqrt:
      return 1 - std::sqrt(x);
  }
  return 0;
}

}  // namespace

double lr_at(const OptimizerConfig& o, std::uint64_t t, std::uint64_t steps) {
  if (t < o.warmup_steps) return o.lr * static_cast<double>(t + 1) / static_cast<double>(o.warmup_steps);
  if (o.schedule == Schedule::kConstant) return o.lr;
  std::uint64_t begin = o.warmup_steps;
  Decay decay = o.schedule == Schedule::kLinear ? Decay::kLinear : Decay::kCosine;
  if (o.schedule == Schedule::kWsd) {
    decay = o.decay;
    begin = std::max(begin, steps - std::min(o.decay_steps, steps));
    if (t < begin || o.decay_steps == 0) return o.lr;
  }
  // A run that ends during warm-up has no decay; 1 avoids a division by zero.
  const std::uint64_t decay_steps = steps > begin ? steps - begin : 1;
  assert(t >= begin);
  const double progress = std::min(1.0, static_cast<double>(t - begin) / static_cast<double>(decay_steps));
  return o.min_lr + (o.lr - o.min_lr) * remaining(decay, progress);
}

}  // namespace trainhost::runfile
