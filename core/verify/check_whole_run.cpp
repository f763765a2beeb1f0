// MEM-003: the peak of the whole run is at most M_total = P*b_w + P*4 + P*8 + M_act*B + 512 MiB of runtime.
// M_total contains M_act, so it is tested under recompute "full" like MEM-002; the detail also states the
// run's own policy.
//
// Measured: the peak of the ledger over all tiers while a session is created, trains, evaluates and saves,
// with the host's batch and staging buffers; for a trainer in host memory also the resident bytes beyond the
// ledger (code and libraries). Memory that is allocated but never used counts. The context of a device is not
// measured; the trainer reports a round figure, which is printed but not added, because M_total includes 512
// MiB for it.
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

struct WholeRun {
  Footprint f;
  std::uint64_t peak, bound;
  bool held() const { return peak <= bound; }
};

WholeRun measure_whole_run(Context& context, const runfile::RunConfig& c, const std::string& mode) {
  Footprint f = measure_footprint(context, c, mode, Measured::kWhole);
  const std::uint64_t bound =
      contract_total_bytes(c.model, f.run, count_parameters(c.model).total, f.f32_storage);
  const std::uint64_t peak = f.ledger_bytes + f.runtime_bytes;
  return {std::move(f), peak, bound};
}

std::string describe_runtime(const Footprint& f) {
  if (!f.reported_runtime_bytes) return format_count(f.runtime_bytes) + " of runtime memory";
  return fmt::format("a device context that is not measured (the trainer reports {})",
                     format_count(f.reported_runtime_bytes));
}

}  // namespace

Result check_whole_run(Context& context) {
  return run_in_every_mode(context, [&](const std::string& mode) {
    runfile::RunConfig full = context.run;
    full.run.recompute = Recompute::kFull, full.run.recompute_layers = {};
    const WholeRun w = measure_whole_run(context, full, mode);
    std::string own;
    if (context.run.run.recompute != Recompute::kFull) {
      try {
        const WholeRun o = measure_whole_run(context, context.run, mode);
        own = fmt::format("; the run's own \"{}\" takes {}, which is {}", name(context.run.run.recompute),
                          format_count(o.peak), o.held() ? "within it" : "ABOVE IT");
      } catch (const CheckSkipped& e) {
        own = fmt::format("; the run's own \"{}\" was not measured: {}", name(context.run.run.recompute),
                          e.what());
      }
    }
    return Finding{
        w.held(), double(w.peak), double(w.bound),
        fmt::format(
            "recompute = \"full\": {} bytes in the ledger and {} at the peak of load, step, evaluation "
            "and save; M_total is {} with the contract's 512 MiB of runtime, {} without{}",
            format_count(w.f.ledger_bytes), describe_runtime(w.f), format_count(w.bound),
            format_count(w.bound - kContractRuntimeBytes), own)};
  });
}

}  // namespace trainhost::verify
