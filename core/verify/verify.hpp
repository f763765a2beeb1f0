// Runs the checks of `trainhost verify`.
#pragma once
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"

namespace trainhost::verify {

/// One result per check, in order. A check that cannot be run here gives a skipped result with the reason.
/// User errors (a missing text, a wrong file) throw Error.
std::vector<Result> run_checks(Context& context, const std::vector<const Check*>& checks);

/// kFalsified if a check with `decides` set was falsified, else kDone.
Exit exit_of(const std::vector<Result>& results);

}  // namespace trainhost::verify
