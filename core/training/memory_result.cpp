// See memory_result.hpp.
#include "core/training/memory_result.hpp"

#include "core/process/host_info.hpp"

namespace trainhost::training {

MemoryResult memory_result(const planning::Estimate& plan, const plugin::Ledger& ledger) {
  MemoryResult m;
  m.predicted_bytes = plan.total_bytes;
  m.measured_bytes = ledger.peak_total();
  m.process_peak_bytes = process_peak_bytes();
  for (Tier t : {Tier::kDevice, Tier::kPinned, Tier::kHost, Tier::kDisk})
    if (std::uint64_t predicted = plan.report.tier_bytes(t); predicted || ledger.peak(t))
      m.tiers.push_back({t, predicted, ledger.peak(t)});
  return m;
}

}  // namespace trainhost::training
