// GPU-006: loss and weights stay finite, and one global norm clips all gradients. The second is seen from
// outside: under SGD without decay a clipped step is lr * clip_norm long over all tensors together, whatever
// the gradient was; a tensor that escapes the clipping, or is clipped by a norm of its own, changes that
// length.
#include <fmt/format.h>

#include <cmath>

#include "core/verify/gpu_checks.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kSteps = 100;
constexpr double kClip = 1e-3, kClippingBound = 1e-3;
constexpr double kLr =
    16;  // a power of two, so that the step stands well above the rounding of large models' weights

/// Trains and counts what is not finite: losses and norms at every step, weights in the middle and at the
/// end.
Finding judge_finite(Context& context, const std::string& mode) {
  const runfile::RunConfig& c = context.run;
  const std::uint64_t steps = steps_of(c, kSteps);
  Rig rig(context, c, {.mode = mode});
  for (std::uint64_t t = 0; t < steps; ++t) {
    const plugin::StepResult r = rig.step(t, runfile::lr_at(c.optimizer, t, c.steps));
    if (!std::isfinite(r.loss) || !std::isfinite(r.grad_norm))
      return {false, INFINITY, kClippingBound,
              fmt::format("step {}: loss {}, gradient norm {}", t + 1, r.loss, r.grad_norm)};
    if (t + 1 != (steps + 1) / 2 && t + 1 != steps) continue;
    if (const std::uint64_t n = not_finite(rig.weights()))
      return {false, INFINITY, kClippingBound,
              fmt::format("{} weights are not finite after step {}", n, t + 1)};
  }
  return {true, 0, kClippingBound,
          fmt::format("losses, gradient norms and weights are finite over {} steps", steps)};
}

struct Move {
  double all = 0, embedding = 0;  // L2 norms
};

Move moved(const Snapshot& a, const Snapshot& b) {
  Move m;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const double d = squared_distance(a.of(i), b.of(i));
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
  Rig rig(context, c, {.mode = mode});
  const Snapshot before = rig.weights();
  const double norm = rig.step(0, kLr).grad_norm;
  if (norm <= kClip)
    throw NotJudged(
        fmt::format("the gradient's norm is {:.3g}: too small to be clipped to {:g}", norm, kClip));
  const Move move = moved(before, rig.weights());
  const double off = std::abs(move.all / (kLr * kClip) - 1);
  if (!(move.embedding > 0))
    return {false, INFINITY, kClippingBound, "a clipped step does not move the embedding"};
  return {off < kClippingBound, off, kClippingBound,
          fmt::format("one SGD step clipped to {:g} moves all weights by {:.6f} of that, the embedding's "
                      "part {:.1f} % (gradient "
                      "norm {:.3g})",
                      kClip, move.all / (kLr * kClip), 100 * move.embedding / move.all, norm)};
}

}  // namespace

Result check_clipping(Context& context) {
  return over_modes(context, [&](const std::string& mode) {
    const Finding finite = judge_finite(context, mode);
    if (!finite.held) return finite;
    Finding clip = judge_clip(context, mode);
    clip.detail = finite.detail + "; " + clip.detail;
    return clip;
  });
}

}  // namespace trainhost::verify
