// MEM-001: P equals the number of elements of the trainer's tensors, counted from what save() gives and not
// from the host's list of tensors. If the model breaks an assumption of the formula, the true count is the
// bound and the detail also states the value of the formula.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

std::string describe_formula(const ModelSpec& m, std::uint64_t truth) {
  const std::uint64_t formula = contract_parameters(m);
  const std::string why = broken_assumptions(m);
  if (why.empty()) return "the contract's formula";
  return fmt::format("the true closed form; the contract's formula gives {} ({:+.2f} %), because it omits {}",
                     format_count(formula), 100 * (double(formula) / double(truth) - 1), why);
}

}  // namespace

Result check_parameters(Context& context) {
  return run_in_every_mode(context, [&](const std::string& mode) {
    const ModelSpec& m = context.run.model;
    const std::uint64_t p =
        broken_assumptions(m).empty() ? contract_parameters(m) : count_parameters(m).total;
    const Footprint f = measure_footprint(context, context.run, mode, Measured::kCreated);
    return Finding{
        f.weight_elements == p, double(f.weight_elements), double(p),
        fmt::format(
            "the tensors that the {} trainer saves have {} elements{}; P = {} by {}",
            context.trainers.backend(), format_count(f.weight_elements),
            f.duplicate_tensor.empty() ? "" : " (" + f.duplicate_tensor + ", saved too, is the embedding)",
            format_count(p), describe_formula(m, p))};
  });
}

}  // namespace trainhost::verify
