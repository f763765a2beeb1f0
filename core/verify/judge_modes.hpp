// One contract over every mode that the backend offers: judged in each, reported once, by its worst. The
// checks say what they found in one mode; what becomes of refusals and failures is decided here.
#pragma once
#include <functional>
#include <string>

#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"

namespace trainhost::verify {

/// What one mode showed. `measured` and `bound`: the figures that decided; the larger `measured` is the
/// worse.
struct Finding {
  bool held = false;
  double measured = 0, bound = 0;
  std::string detail;
};

/// Judges every mode. Falsified when one mode is; skipped when none could be judged, with every mode's
/// reason. A trainer that fails in the middle has broken the contract: its message is the detail.
Result over_modes(Context& context, const std::function<Finding(const std::string& mode)>& judge);

/// One finding as a result, for checks with a mode of their own. NotJudged becomes skipped, as above.
Result once(const std::function<Finding()>& judge);

Result skipped(const std::string& reason);

}  // namespace trainhost::verify
