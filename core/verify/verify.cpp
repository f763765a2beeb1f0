// See verify.hpp. A check that throws NotJudged is skipped; any other exception that reaches this file is the
// user's or the machine's and ends the command.
#include "core/verify/verify.hpp"

#include <algorithm>

#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

Result run_one(Context& context, const Check& check, const std::string& absent) {
  if (!absent.empty() && check.needs_trainer) return skipped(absent);
  try {
    return check.run(context);
  } catch (const NotJudged& e) {
    return skipped(e.what());
  }
}

}  // namespace

std::vector<Result> run_checks(Context& context, const std::vector<const Check*>& which) {
  const std::string absent = context.subjects.absent();
  std::vector<Result> out;
  for (const Check* check : which) {
    context.say(check->id + ": " + check->title);
    Result r = run_one(context, *check, absent);
    r.id = check->id;
    r.title = check->title;
    r.decides = check->decides;
    out.push_back(std::move(r));
  }
  return out;
}

Exit exit_of(const std::vector<Result>& results) {
  const bool falsified = std::any_of(results.begin(), results.end(), [](const Result& r) {
    return r.decides && r.status == Status::kFalsified;
  });
  return falsified ? Exit::kFalsified : Exit::kDone;
}

}  // namespace trainhost::verify
