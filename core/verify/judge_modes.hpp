// Runs one check in every mode of the backend and reports the worst result. A check returns its finding for
// one mode; this file decides what rejections and failures of the trainer mean.
#pragma once
#include <functional>
#include <string>

#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"

namespace trainhost::verify {

/// The result in one mode. `measured` and `bound` are the figures that were compared; of two findings with
/// equal `held`, the one with the larger `measured` is worse.
struct Finding {
  bool held = false;
  double measured = 0, bound = 0;
  std::string detail;
};

/// Runs `judge` in every mode. Falsified if one mode is; skipped if every mode was, with all reasons. A
/// trainer that fails during the check has falsified the contract: its message is the detail.
Result run_in_every_mode(Context& context, const std::function<Finding(const std::string& mode)>& judge);

/// The same for a check that chooses its mode itself.
Result run_once(const std::function<Finding()>& judge);

Result skipped(const std::string& reason);

}  // namespace trainhost::verify
