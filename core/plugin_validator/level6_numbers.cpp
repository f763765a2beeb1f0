// Level 6 for trainers: the update is the gradient of the trainer's own loss, and means are over counted
// targets however a batch is split. Tiny models with weights generated here:
// initial weights differ between trainers, and many of them start with tensors of 0 or 1, which would hide
// errors.
#include <cmath>
#include <random>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr double kLossTolerance = 2e-5;  // relative, of one f32 forward pass over some thousand terms

bool near(double a, double b, double relative) {
  return std::abs(a - b) <= relative * std::max(std::abs(a), std::abs(b));
}

/// Creates and initialises the instance, then loads random weights.
void begin_with_random_weights(WatchedInstance& i, std::uint64_t seed) {
  i.create_and_init();
  load_weights(i, random_weights(weights_of(i), seed));
}

/// The gradient of one batch: the difference that one SGD step with learning rate 1 makes. Rounding of the
/// weights limits it to about 1e-7 of the largest weight.
AllWeights gradient(WatchedInstance& i, const AllWeights& from, const Batch& batch, th_step_out& out) {
  out = step_or_throw(i, batch, 1, 0);
  AllWeights g = weights_of(i);
  for (auto& [name, w] : g)
    for (std::size_t k = 0; k < w.values.size(); ++k) w.values[k] = from.at(name).values[k] - w.values[k];
  return g;
}

double norm(const Weights& w) {
  double sum = 0;
  for (float x : w.values) sum += double{x} * x;
  return std::sqrt(sum);
}

/// Sample, weights, batch and gradient. One micro-batch, so that an evaluation uses the same data as the
/// step.
struct SgdUpdate {
  SgdUpdate(WatchedPlugin& plugin) : sample(sgd_sample(plugin.sample())), instance(plugin, sample) {
    require_run(plugin, sample, "plain gradient descent (sgd)");
    instance.create_and_init();
    weights = random_weights(weights_of(instance), plugin.seed());
    load_weights(instance, weights);
    batch = make_batch(sample, plugin.seed());
    g = gradient(instance, weights, batch, out);
    // Back to the weights before the step: the differences below are taken there.
    load_weights(instance, weights);
  }
  Sample sample;
  WatchedInstance instance;
  AllWeights weights, g;
  Batch batch;
  th_step_out out{};
};

/// Central differences along directions of random signs, tensor by tensor. Such a direction changes every
/// element equally, so missing gradient elements are detected; a direction along the gradient itself would
/// not detect them.
void check_gradient(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  SgdUpdate d(plugin);
  // Step of the difference: its error is that of the loss (2e-6 in f32) over 2 * kStep, and a larger step
  // adds the third derivative.
  constexpr double kStep = 2e-3, kDerivativeError = 2e-6 / (2 * kStep);  // the loss is a sum in f32
  // Directions of the seed alone, the same for each plugin.
  std::mt19937_64 random(plugin.seed());
  double worst = 0;
  for (const auto& [name, w] : d.weights) {
    const Weights& g = d.g.at(name);
    for (int direction = 0; direction < 3; ++direction) {
      Weights up = w, down = w;
      double expected = 0;
      for (std::size_t k = 0; k < w.values.size(); ++k) {
        const double sign = random() & 1 ? 1 : -1;
        up.values[k] += static_cast<float>(sign * kStep), down.values[k] -= static_cast<float>(sign * kStep);
        expected += sign * g.values[k];
      }
      load_tensor(d.instance, name, up);
      const double above = evaluate_or_throw(d.instance, d.batch);
      load_tensor(d.instance, name, down);
      const double measured = (above - evaluate_or_throw(d.instance, d.batch)) / (2 * kStep);
      const double scale = norm(g), off = std::abs(measured - expected);
      // 5 % of the norm: three directions detect an error of one tensor, not the last bits.
      expect(off <= 0.05 * scale + 2 * kDerivativeError,
             "along a direction of {} the evaluated loss changes by {:.5f}; the update predicts {:.5f} (norm "
             "of its gradient {:.5f})",
             escaped(name), measured, expected, scale);
      // Tiny gradients are dominated by rounding and are left out of the measurement.
      if (scale > 100 * kDerivativeError) worst = std::max(worst, off / scale);
    }
    // Before the next tensor: one tensor is changed at a time.
    load_tensor(d.instance, name, w);
  }
  plugin.note_measurement(
      fmt::format("gradients and differences of the loss agree within {:.1e} of the norm", worst));
}

void check_gradient_norm(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  SgdUpdate d(plugin);
  double sum = 0;
  for (const auto& [name, g] : d.g) sum += norm(g) * norm(g);
  // Clipping is off in these runs, so the reported norm is the norm of the applied update.
  expect(near(d.out.grad_norm, std::sqrt(sum), 2e-3),
         "step() reports a gradient norm of {:.6f}; its update has {:.6f}", d.out.grad_norm, std::sqrt(sum));
}

/// Sequences with quite different numbers of counted targets: with equal numbers a mean of means is right
/// too.
Batch uneven(Batch b) {
  for (std::uint32_t n = 0; n < b.sequences; ++n)
    for (std::uint32_t t = 0; t < n * b.seq / b.sequences; ++t) b.targets[n * b.seq + t] = -100;
  return b;
}

void check_accumulation(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  Sample parts = sgd_sample(plugin.sample()), whole = parts;
  // The same four sequences in both; only their division differs.
  parts.run.micro_batch = 1, parts.run.accumulate = 4, whole.run.micro_batch = 4, whole.run.accumulate = 1;
  require_run(plugin, parts, "plain gradient descent (sgd) in 4 micro-batches");
  WatchedInstance p(plugin, parts), w(plugin, whole);
  begin_with_random_weights(p, plugin.seed()), begin_with_random_weights(w, plugin.seed());
  const Batch batch = uneven(make_batch(whole, plugin.seed()));
  const th_step_out a = step_or_throw(p, batch, 1, 0), c = step_or_throw(w, batch, 1, 0);
  expect(near(a.loss, c.loss, 1e-4) && near(a.grad_norm, c.grad_norm, 1e-3),
         "4 micro-batches of 1 give the loss {:.6f} and the norm {:.6f}, 1 of 4 gives {:.6f} and {:.6f}; "
         "means over all counted targets were expected",
         a.loss, a.grad_norm, c.loss, c.grad_norm);
  expect(a.tokens_counted == c.tokens_counted, "4 micro-batches of 1 count {} targets, 1 of 4 counts {}",
         a.tokens_counted, c.tokens_counted);
}

void check_uncounted_targets(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  begin_with_random_weights(i, plugin.seed());
  // `both` has one real and one masked sequence; `one` has the real one alone.
  Batch both = make_batch(i.sample(), plugin.seed(), 2), one = both;
  one.sequences = 1, one.tokens.resize(one.seq), one.targets.resize(one.seq);
  for (std::uint32_t t = 0; t < both.seq; ++t) both.targets[both.seq + t] = -100;
  const double with = evaluate_or_throw(i, both), alone = evaluate_or_throw(i, one);
  expect(near(with, alone, kLossTolerance),
         "a sequence in a batch with a fully masked one has the loss {:.6f}, alone {:.6f}; the same was "
         "expected",
         with, alone);
}

}  // namespace

std::vector<Check> trainer_number_checks() {
  return {
      {"T-055",
       6,
       "Targets of -100 do not contribute",
       "Prompts and padding are masked with -100. A fully masked sequence must change neither the loss "
       "nor the mean. A trainer that reads -100 as a token, or divides by all positions, learns padding. "
       "Fix: skip such rows in the loss, give them a gradient of 0, and divide by the number of counted "
       "targets.",
       {"T-022", "T-061", "T-026"},
       check_uncounted_targets},
      {"T-051",
       6,
       "The update is the gradient of the loss",
       "One SGD step with learning rate 1 subtracts the gradient. The check compares it with finite "
       "differences of the evaluated loss along random directions of every tensor, which detects a wrong "
       "or missing backward kernel even if the loss still falls. Fix: look at the backward kernel of the "
       "tensor that the message names.",
       {"T-061", "T-023", "T-025", "T-055"},
       check_gradient},
      {"T-052",
       6,
       "grad_norm is the norm of the gradient",
       "Users clip by it and watch it for spikes. It is the L2 norm over all parameters, before clipping. "
       "Fix: sum the squares of all gradients, of all micro-batches together, before clipping.",
       {"T-051", "T-058"},
       check_gradient_norm},
      {"T-054",
       6,
       "Micro-batches accumulate to one batch",
       "accumulate x micro_batch sequences are one step: loss and gradient are means over all counted "
       "targets, not means of the means of the micro-batches. Fix: scale each micro-batch by 1 / counted "
       "targets of the whole step.",
       {"T-051"},
       check_accumulation},
  };
}

}  // namespace trainhost::plugin_validator
