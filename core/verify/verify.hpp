// Runs checks and says what came of them: the order of events of `trainhost verify`.
#pragma once
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/report/terminal.hpp"
#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"

namespace trainhost::verify {

/// One result a check, in order. What a check cannot judge is a skipped result with the reason; the user's
/// mistakes (no text, a wrong file) throw.
std::vector<Result> run_checks(Context& context, const std::vector<const Check*>& which);

/// kFalsified when a check that decides was falsified, else kDone.
Exit exit_of(const std::vector<Result>& results);

/// {"results":[{"id","status","measured","bound","detail"}]}; a figure that is absent or no number is null.
std::string results_json(const std::vector<Result>& results);

/// The table, for people, with one line of detail under each row.
std::string results_table(const std::vector<Result>& results, const report::Terminal& t);

}  // namespace trainhost::verify
