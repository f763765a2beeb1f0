// Predicted and measured memory at the end of a run: bytes of the plan, peak of the ledger, peak resident
// size of the process.
#pragma once
#include <cstdint>
#include <vector>

#include "core/planning/plan_result.hpp"
#include "core/plugin/ledger.hpp"
#include "core/process/host_info.hpp"

namespace trainhost::training {

struct MemoryResult {
  std::uint64_t predicted_bytes = 0, measured_bytes = 0, process_peak_bytes = 0;
  std::uint64_t runtime_bytes() const {
    return process_peak_bytes > measured_bytes ? process_peak_bytes - measured_bytes : 0;
  }
  struct TierRow {
    Tier tier;
    std::uint64_t predicted_bytes, measured_bytes;
  };
  std::vector<TierRow> tiers;
};

/// `plan`: that of the trainer, with the host's own buffers.
inline MemoryResult memory_result(const planning::Estimate& plan, const plugin::Ledger& ledger) {
  MemoryResult m;
  m.predicted_bytes = plan.total_bytes;
  m.measured_bytes = ledger.peak_total();
  m.process_peak_bytes = process_peak_bytes();
  for (Tier t : kAllTiers)
    if (std::uint64_t predicted = plan.report.tier_bytes(t); predicted || ledger.peak(t))
      m.tiers.push_back({t, predicted, ledger.peak(t)});
  return m;
}

}  // namespace trainhost::training
