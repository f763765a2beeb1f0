// Runs the checks. CheckSkipped becomes a skipped result. Any other exception here is an error of the user or
// of the machine and ends the command.
#include "core/verify/contract_check.hpp"

#include <algorithm>

#include "core/verify/context.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

Result run_one(Context& context, const Check& check, const std::string& unavailable) {
  if (!unavailable.empty() && check.needs_trainer) return skipped(unavailable);
  try {
    return check.run(context);
  } catch (const CheckSkipped& e) {
    return skipped(e.what());
  }
}

}  // namespace

std::vector<Result> run_checks(Context& context, const std::vector<const Check*>& checks) {
  const std::string unavailable = context.trainers.unavailable_reason();
  std::vector<Result> out;
  for (const Check* check : checks) {
    context.report_progress(check->id + ": " + check->title);
    Result r = run_one(context, *check, unavailable);
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
