// MEM-004 and MEM-005: bytes of weights and of optimizer state, to the byte.
//
// Weights: the bytes in the ledger minus those that the report assigns to other components must be P*b_w.
// Bytes that the report does not name count as weights.
//
// Optimizer: a session with AdamW and one with plain SGD differ only in the moments, so the difference of
// their ledger bytes, without fragmentation, is the optimizer's memory; no plan is needed. save() must give
// 2*P elements of moments, which shows that the bytes are moments.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

/// Bytes in the ledger without fragmentation.
double tensor_bytes(const Footprint& f) {
  return double(f.ledger_bytes) - double(f.report.component_bytes(Component::kFragmentation));
}

runfile::RunConfig with_optimizer(runfile::RunConfig c, Optimizer o) {
  c.run.optimizer = o;
  return c;
}

}  // namespace

Result check_weight_bytes(Context& context) {
  return run_in_every_mode(context, [&](const std::string& mode) {
    const Footprint f = measure_footprint(context, context.run, mode, Measured::kCreated);
    const std::uint64_t p = count_parameters(context.run.model).total;
    const std::uint64_t each = bytes_per_weight(f.run, f.f32_storage), bound = p * each;
    const std::uint64_t bytes = f.bytes_of({Component::kWeights, Component::kMasterWeights});
    return Finding{bytes == bound, double(bytes), double(bound),
                   fmt::format("weights take {} of the {} bytes in the ledger; P*b_w = {}*{} = {}{}",
                               format_count(bytes), format_count(f.ledger_bytes), format_count(p), each,
                               format_count(bound),
                               size_of(f.run.master) && !f.f32_storage ? ", master copy included" : "")};
  });
}

Result check_optimizer_bytes(Context& context) {
  if (context.run.run.optimizer != Optimizer::kAdamW)
    return skipped(fmt::format("P*8 is for the two moments of AdamW; this run's optimizer is {}",
                               name(context.run.run.optimizer)));
  return run_in_every_mode(context, [&](const std::string& mode) {
    runfile::RunConfig c = context.run;
    c.run =
        context.trainers.resolve_run(mode, c);  // once, so that both sessions use the same recompute policy
    const Footprint adam = measure_footprint(context, c, mode, Measured::kCreated);
    const Footprint sgd =
        measure_footprint(context, with_optimizer(c, Optimizer::kSgd), mode, Measured::kCreated);
    const double bytes = tensor_bytes(adam) - tensor_bytes(sgd), p = double(count_parameters(c.model).total);
    const double bound = 8 * p;
    const bool moments = double(adam.moment_elements) == 2 * p;
    return Finding{
        bytes == bound && moments, bytes, bound,
        fmt::format(
            "a session with AdamW takes {:.0f} bytes more than one with SGD, without fragmentation; P*8 is "
            "{:.0f}; it saves {} elements of moments, 2*P is {:.0f}",
            bytes, bound, adam.moment_elements, 2 * p)};
  });
}

}  // namespace trainhost::verify
