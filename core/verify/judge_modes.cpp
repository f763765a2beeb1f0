// See judge_modes.hpp. Classifies failures of the trainer: rejected, broken, or not its
// fault. The checks themselves catch nothing.
#include "core/verify/judge_modes.hpp"

#include <fmt/format.h>

#include <cassert>
#include <cmath>

#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

struct ModeFinding {
  std::string mode;
  Finding finding;
};

/// The finding of one mode. A rejection skips the mode; any other failure of the plugin falsifies the
/// contract. Errors that the plugin did not cause (missing text, full disk, signal) propagate.
Finding judge_one(const std::function<Finding()>& judge) {
  try {
    return judge();
  } catch (const plugin::PluginError& e) {
    // The user's signal.
    if (e.code() == Exit::kStopped) throw;
    if (is_rejection(e)) throw CheckSkipped(e.full());
    // INFINITY: worse than every measured value.
    return {false, INFINITY, 0, "the trainer failed: " + e.full()};
  }
}

// A falsified mode is worse than a held one, whatever was measured.
bool worse(const Finding& a, const Finding& b) {
  if (a.held != b.held) return !a.held;
  return a.measured > b.measured;
}

Result result_of(const Finding& f) {
  Result r;
  r.status = f.held ? Status::kHeld : Status::kFalsified;
  r.measured = f.measured;
  r.bound = f.bound;
  r.detail = f.detail;
  return r;
}

}  // namespace

Result skipped(const std::string& reason) {
  Result r;
  r.detail = reason;
  return r;
}

Result run_once(const std::function<Finding()>& judge) {
  try {
    return result_of(judge_one(judge));
  } catch (const CheckSkipped& e) {
    return skipped(e.what());
  }
}

Result run_in_every_mode(Context& context, const std::function<Finding(const std::string& mode)>& judge) {
  std::vector<ModeFinding> findings;
  std::string skipped_modes;
  for (const std::string& mode : context.trainers.modes()) {
    try {
      findings.push_back({mode, judge_one([&] { return judge(mode); })});
    } catch (const CheckSkipped& e) {
      skipped_modes +=
          fmt::format("{}{}{}", skipped_modes.empty() ? "" : "; ", mode.empty() ? "" : mode + ": ", e.what());
    }
  }
  assert(!findings.empty() || !skipped_modes.empty());  // modes() is never empty
  // Skipped only if no mode could be tested.
  if (findings.empty()) return skipped(skipped_modes);
  const ModeFinding* worst = &findings.front();
  for (const ModeFinding& j : findings)
    if (worse(j.finding, worst->finding)) worst = &j;
  Result r = result_of(worst->finding);
  if (!worst->mode.empty()) {
    r.detail =
        fmt::format("{}{}: {}", findings.size() > 1 ? "worst in mode " : "mode ", worst->mode, r.detail);
    for (const ModeFinding& j : findings)
      if (&j != worst)
        r.detail += fmt::format("; {} {} {:.3g}", j.mode, j.finding.held ? "held," : "FALSIFIED,",
                                j.finding.measured);
  }
  if (!skipped_modes.empty()) r.detail += "; skipped: " + skipped_modes;
  return r;
}

}  // namespace trainhost::verify
