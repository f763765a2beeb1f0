// One falsification test: the id of a contract in docs/memory-model.md, a title, and a function that returns
// held, falsified or skipped. All checks are in one table (contract_table.cpp). A check uses only its
// Context: no plugin file, no device library.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::verify {

struct Context;

enum class Status { kHeld, kFalsified, kSkipped };

/// The result of a check. `measured` and `bound` are the figures that were compared; both are absent if
/// nothing could be measured.
struct Result {
  std::string id, title;
  Status status = Status::kSkipped;
  std::optional<double> measured, bound;
  std::string detail;   // one or two sentences: what was compared, the result, the worst mode
  bool decides = true;  // false: reported only, does not lead to exit 5
};

struct Check {
  std::string id, title;
  std::function<Result(Context&)> run;  // fills status, figures and detail
  bool needs_trainer = true;            // false: runs even if the backend is unavailable
  bool decides = true;
};

/// Every check, in the order of the contracts.
std::span<const Check> checks();

/// The checks that `only` names ("GPU-001,MEM-002"; MEM-002 includes MEM-002/run), in the order of the table.
/// Empty: all checks. Throws usage_error with the nearest id for an unknown one.
std::vector<const Check*> select(const std::string& only);

/// Runs the checks: one result per check, in order. A check that cannot be run here gives a skipped result
/// with the reason. User errors (a missing text, a wrong file) throw Error.
std::vector<Result> run_checks(Context& context, const std::vector<const Check*>& checks);

/// kFalsified if a check with `decides` set was falsified, else kDone.
Exit exit_of(const std::vector<Result>& results);

const char* status_name(Status s);  // "held" | "falsified" | "skipped"

}  // namespace trainhost::verify
