// MEM-003: the measured peak of the whole run is at most M_total = P*b_w + P*4 + P*8 + M_act*B + 512 MiB of
// runtime. M_total holds M_act, so it is judged under the policy under which MEM-002 is; the run's own is
// told beside it.
//
// Measured: the ledger's peak over all tiers while a session is created, trains, evaluates and saves, with
// the host's own batch and staging buffers, and, for a trainer in host memory, what the process has resident
// beyond the ledger: code and libraries. Memory that was taken and never touched counts. Of a device's
// context only the trainer's word is known, the same round figure as the contract's: it is told and not
// added, and the 512 MiB of M_total stand for it.
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/verify/contract_equations.hpp"
#include "core/verify/footprint.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/memory_checks.hpp"

namespace trainhost::verify {
namespace {

struct Whole {
  Footprint f;
  std::uint64_t peak, bound;
  bool held() const { return peak <= bound; }
};

Whole measure_whole_run(Context& context, const runfile::RunConfig& c, const std::string& mode) {
  Footprint f = footprint(context, c, mode, Measured::kWhole);
  const std::uint64_t bound =
      contract_total_bytes(c.model, f.run, count_parameters(c.model).total, f.f32_storage);
  const std::uint64_t peak = f.ledger_bytes + f.runtime_bytes;
  return {std::move(f), peak, bound};
}

std::string runtime_words(const Footprint& f) {
  if (!f.stated_runtime_bytes) return format_count(f.runtime_bytes) + " of runtime";
  return fmt::format("a context on the device that is not measured (the trainer says {})",
                     format_count(f.stated_runtime_bytes));
}

}  // namespace

Result check_whole_run(Context& context) {
  return over_modes(context, [&](const std::string& mode) {
    runfile::RunConfig full = context.run;
    full.run.recompute = Recompute::kFull, full.run.recompute_layers = {};
    const Whole w = measure_whole_run(context, full, mode);
    std::string own;
    if (context.run.run.recompute != Recompute::kFull) {
      try {
        const Whole o = measure_whole_run(context, context.run, mode);
        own = fmt::format("; the run's own \"{}\" takes {}, which {} it", name(context.run.run.recompute),
                          format_count(o.peak), o.held() ? "holds" : "BREAKS");
      } catch (const NotJudged& e) {
        own = fmt::format("; the run's own \"{}\" was not measured: {}", name(context.run.run.recompute),
                          e.what());
      }
    }
    return Finding{
        w.held(), double(w.peak), double(w.bound),
        fmt::format(
            "recompute = \"full\": {} bytes by the ledger and {} at the peak of load, step, evaluation "
            "and save; M_total is {} with the contract's 512 MiB of runtime, {} without{}",
            format_count(w.f.ledger_bytes), runtime_words(w.f), format_count(w.bound),
            format_count(w.bound - kContractRuntimeBytes), own)};
  });
}

}  // namespace trainhost::verify
