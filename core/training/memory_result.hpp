// Prediction beside measurement at the end of a run: the plan's bytes, the ledger's, and what the process had
// resident.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/plugin/ledger.hpp"
#include "core/report/plan_view.hpp"
#include "core/report/terminal.hpp"

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

/// `plan`: the trainer's own, host buffers added.
MemoryResult memory_result(const report::Estimate& plan, const plugin::Ledger& ledger);

/// The three lines for people.
std::string memory_lines(const MemoryResult& m, const report::Terminal& t);

}  // namespace trainhost::training
