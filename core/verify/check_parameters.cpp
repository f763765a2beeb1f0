// MEM-001: P equals the sum of the element counts of the trainer's own tensors, which are those that it
// saves: what save() gives is added up, and no list of tensors of ours is asked. Where the model breaks an
// assumption of the contract's formula the true count is the bound, and the detail says what the formula
// gives.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/memory_checks.hpp"

namespace trainhost::verify {
namespace {

std::string formula_note(const ModelSpec& m, std::uint64_t truth) {
  const std::uint64_t formula = contract_parameters(m);
  const std::string why = broken_assumptions(m);
  if (why.empty()) return "the contract's formula";
  return fmt::format(
      "the true closed form; the contract's formula gives {} ({:+.2f} %), because it knows nothing of {}",
      format_count(formula), 100 * (double(formula) / double(truth) - 1), why);
}

}  // namespace

Result check_parameters(Context& context) {
  return over_modes(context, [&](const std::string& mode) {
    const ModelSpec& m = context.run.model;
    const std::uint64_t p =
        broken_assumptions(m).empty() ? contract_parameters(m) : count_parameters(m).total;
    const Footprint f = footprint(context, context.run, mode, Measured::kCreated);
    return Finding{f.weight_elements == p, double(f.weight_elements), double(p),
                   fmt::format("the tensors that the {} trainer saves have {} elements{}; P = {} by {}",
                               context.subjects.backend(), format_count(f.weight_elements),
                               f.repeated.empty() ? "" : " (" + f.repeated + " is the embedding again)",
                               format_count(p), formula_note(m, p))};
  });
}

}  // namespace trainhost::verify
