// See judge_modes.hpp. Here it is decided what a failure of the trainer means: refused, broken, or not its
// fault. The checks themselves catch nothing.
#include "core/verify/judge_modes.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

struct Judged {
  std::string mode;
  Finding finding;
};

/// One mode's finding. A refusal in the middle is no breach; any other failure of the plugin is one. What is
/// not the plugin's fault (no text, no such file, a full disk, a signal) goes on upwards.
Finding judge_one(const std::function<Finding()>& judge) {
  try {
    return judge();
  } catch (const plugin::PluginError& e) {
    if (e.code() == Exit::kStopped) throw;
    if (is_refusal(e)) throw NotJudged(e.full());
    return {false, INFINITY, 0, "the trainer failed: " + e.full()};
  }
}

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

Result once(const std::function<Finding()>& judge) {
  try {
    return result_of(judge_one(judge));
  } catch (const NotJudged& e) {
    return skipped(e.what());
  }
}

Result over_modes(Context& context, const std::function<Finding(const std::string& mode)>& judge) {
  std::vector<Judged> judged;
  std::string not_judged;
  for (const std::string& mode : context.subjects.modes()) {
    try {
      judged.push_back({mode, judge_one([&] { return judge(mode); })});
    } catch (const NotJudged& e) {
      not_judged +=
          fmt::format("{}{}{}", not_judged.empty() ? "" : "; ", mode.empty() ? "" : mode + ": ", e.what());
    }
  }
  if (judged.empty()) return skipped(not_judged);
  const Judged* worst = &judged.front();
  for (const Judged& j : judged)
    if (worse(j.finding, worst->finding)) worst = &j;
  Result r = result_of(worst->finding);
  if (!worst->mode.empty()) {
    r.detail = fmt::format("{}{}: {}", judged.size() > 1 ? "worst in mode " : "mode ", worst->mode, r.detail);
    for (const Judged& j : judged)
      if (&j != worst)
        r.detail += fmt::format("; {} {} {:.3g}", j.mode, j.finding.held ? "held," : "FALSIFIED,",
                                j.finding.measured);
  }
  if (!not_judged.empty()) r.detail += "; not judged: " + not_judged;
  return r;
}

}  // namespace trainhost::verify
