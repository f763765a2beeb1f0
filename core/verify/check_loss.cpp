// GPU-001: from identical weights and batches, the losses of the tested trainer and of the CPU trainer differ
// by less than 1e-3 at each of the first 100 steps. Tested in f32, because a lower precision is chosen by the
// run and is not an error.
#include <fmt/format.h>

#include <cmath>

#include "core/verify/contract_table.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr double kLossBound = 1e-3;
constexpr std::uint64_t kLossSteps = 100;

std::vector<double> losses(Context& context, const runfile::RunConfig& c, const TrainerFixture::Options& o) {
  TrainerFixture fixture(context, c, o);
  std::vector<double> out;
  for (std::uint64_t t = 0; t < limited_steps(c, kLossSteps); ++t)
    out.push_back(fixture.step(t, runfile::lr_at(c.optimizer, t, c.steps)).loss);
  return out;
}

}  // namespace

Result check_loss(Context& context) {
  const runfile::RunConfig c = in_fp32(context.run);
  std::vector<double> expected;  // the reference is the same for every mode
  return run_in_every_mode(context, [&](const std::string& mode) {
    if (expected.empty()) expected = losses(context, c, {.mode = mode, .reference = true});
    const std::vector<double> got = losses(context, c, {.mode = mode});
    double most = 0;
    std::size_t at = 0;
    for (std::size_t t = 0; t < got.size(); ++t) {
      const double d = std::isnan(got[t] - expected[t]) ? INFINITY : std::abs(got[t] - expected[t]);
      if (d > most) most = d, at = t;
    }
    return Finding{
        most < kLossBound, most, kLossBound,
        fmt::format(
            "over {} steps the losses differ by at most {:.3g} nats (step {}: {} {:.6f}, cpu {:.6f}){}",
            got.size(), most, at + 1, context.trainers.backend(), got[at], expected[at],
            fp32_note(context.run))};
  });
}

}  // namespace trainhost::verify
