// MEM-004 and MEM-005: bytes of weights and of optimizer state, to the byte.
//
// Weights: the ledger's bytes without what the report calls something else must be P*b_w. A byte that nobody
// named counts as weights.
//
// Optimizer: two sessions of the same run, AdamW's and plain SGD's, differ in nothing but the moments, so the
// difference of their ledgers is the optimizer's memory, whatever any plan calls it; what alignment costs in
// each is taken off. The moments that save() gives must number 2*P: the bytes are moments and not something
// else of that size.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/memory_checks.hpp"

namespace trainhost::verify {
namespace {

/// The ledger's bytes without holes and padding.
double tight_bytes(const Footprint& f) {
  return double(f.ledger_bytes) - double(f.report.component_bytes(Component::kFragmentation));
}

runfile::RunConfig with_optimizer(runfile::RunConfig c, Optimizer o) {
  c.run.optimizer = o;
  return c;
}

}  // namespace

Result check_weight_bytes(Context& context) {
  return over_modes(context, [&](const std::string& mode) {
    const Footprint f = footprint(context, context.run, mode, Measured::kCreated);
    const std::uint64_t p = count_parameters(context.run.model).total;
    const std::uint64_t each = bytes_per_weight(f.run, f.f32_storage), bound = p * each;
    const std::uint64_t bytes = f.bytes_of({Component::kWeights, Component::kMasterWeights});
    return Finding{
        bytes == bound, double(bytes), double(bound),
        fmt::format("weights take {} of the ledger's {} bytes; P*b_w = {}*{} = {}{}", format_count(bytes),
                    format_count(f.ledger_bytes), format_count(p), each, format_count(bound),
                    size_of(f.run.master) && !f.f32_storage ? ", master copy included" : "")};
  });
}

Result check_optimizer_bytes(Context& context) {
  if (context.run.run.optimizer != Optimizer::kAdamW)
    return skipped(fmt::format("P*8 is AdamW's two moments; this run's optimizer is {}",
                               name(context.run.run.optimizer)));
  return over_modes(context, [&](const std::string& mode) {
    runfile::RunConfig c = context.run;
    c.run =
        context.subjects.resolved(mode, c);  // once: what fits is not decided anew for a smaller optimizer
    const Footprint adam = footprint(context, c, mode, Measured::kCreated);
    const Footprint sgd = footprint(context, with_optimizer(c, Optimizer::kSgd), mode, Measured::kCreated);
    const double bytes = tight_bytes(adam) - tight_bytes(sgd), p = double(count_parameters(c.model).total);
    const double bound = 8 * p;
    const bool moments = double(adam.moment_elements) == 2 * p;
    return Finding{
        bytes == bound && moments, bytes, bound,
        fmt::format(
            "a session of AdamW takes {:.0f} bytes more than one of SGD, alignment aside; P*8 is {:.0f}; "
            "it saves {} elements of moments, 2*P is {:.0f}",
            bytes, bound, adam.moment_elements, 2 * p)};
  });
}

}  // namespace trainhost::verify
