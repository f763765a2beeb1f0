// GPU-006: loss and weights stay finite, and one global norm clips all gradients. The second part uses that
// under SGD without weight decay the L2 norm of a clipped step over all tensors is lr * clip_norm, for any
// gradient. A tensor that is not clipped, or clipped by its own norm, changes that norm.
#include <fmt/format.h>

#include <cmath>

#include "core/verify/contract_table.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kClippingSteps = 100;
constexpr double kClip = 1e-3, kClippingBound = 1e-3;
constexpr double kLr =
    16;  // a power of two; large, so that the step is far above the rounding error of the weights

/// Trains; tests losses and norms at every step, weights after half of the steps and at the end.
Finding judge_finite(Context& context, const std::string& mode) {
  const runfile::RunConfig& c = context.run;
  const std::uint64_t steps = limited_steps(c, kClippingSteps);
  TrainerFixture fixture(context, c, {.mode = mode});
  for (std::uint64_t t = 0; t < steps; ++t) {
    const plugin::StepResult r = fixture.step(t, runfile::lr_at(c.optimizer, t, c.steps));
    if (!std::isfinite(r.loss) || !std::isfinite(r.grad_norm))
      return {false, INFINITY, kClippingBound,
              fmt::format("step {}: loss {}, gradient norm {}", t + 1, r.loss, r.grad_norm)};
    // Half-way and at the end: save() of a large model takes as long as many steps.
    if (t + 1 != (steps + 1) / 2 && t + 1 != steps) continue;
    if (const std::uint64_t n = count_not_finite(fixture.weights()))
      return {false, INFINITY, kClippingBound,
              fmt::format("{} weights are not finite after step {}", n, t + 1)};
  }
  return {true, 0, kClippingBound,
          fmt::format("losses, gradient norms and weights are finite over {} steps", steps)};
}

/// L2 norms of the change of all weights and of the embedding.
struct Change {
  double all = 0, embedding = 0;
};

Change change_between(const Snapshot& a, const Snapshot& b) {
  Change m;
  // Squares first, one root at the end: the norm over all tensors.
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const double d = squared_distance(a.values_of(i), b.values_of(i));
    m.all += d;
    if (a.tensors[i].role == TensorRole::kEmbed) m.embedding += d;
  }
  return {std::sqrt(m.all), std::sqrt(m.embedding)};
}

Finding judge_clip(Context& context, const std::string& mode) {
  runfile::RunConfig c = context.run;
  c.run.optimizer = Optimizer::kSgd;
  c.run.clip_norm = kClip;
  c.run.weight_decay = 0;
  TrainerFixture fixture(context, c, {.mode = mode});
  const Snapshot before = fixture.weights();
  const double norm = fixture.step(0, kLr).grad_norm;
  // Without clipping the length of the step is lr * norm, and the test would fail for a right trainer.
  if (norm <= kClip)
    throw CheckSkipped(
        fmt::format("the gradient norm {:.3g} is too small to be clipped to {:g}", norm, kClip));
  const Change change = change_between(before, fixture.weights());
  // A relative difference; the bound covers rounding of the weights in f32.
  const double off = std::abs(change.all / (kLr * kClip) - 1);
  if (!(change.embedding > 0))
    return {false, INFINITY, kClippingBound, "a clipped step does not change the embedding"};
  return {
      off < kClippingBound, off, kClippingBound,
      fmt::format("one SGD step clipped to {:g} changes the weights by {:.6f} of that norm, the embedding's "
                  "share is {:.1f} % (gradient norm {:.3g})",
                  kClip, change.all / (kLr * kClip), 100 * change.embedding / change.all, norm)};
}

}  // namespace

Result check_clipping(Context& context) {
  return run_in_every_mode(context, [&](const std::string& mode) {
    const Finding finite = judge_finite(context, mode);
    if (!finite.held) return finite;
    Finding clip = judge_clip(context, mode);
    clip.detail = finite.detail + "; " + clip.detail;
    return clip;
  });
}

}  // namespace trainhost::verify
