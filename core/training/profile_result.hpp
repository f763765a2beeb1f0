// The result of `train --profile`: time and work by kind of operation, measured memory at four points of a
// step compared with the plan, and the planned peak by layer. Data only; core/report prints it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.hpp"
#include "core/training/rank_times.hpp"

namespace trainhost::training {

/// Sums over all profiled steps.
struct OpKindRow {
  std::string kind;          // "linear"
  bool elementwise = false;  // neither a matrix product nor part of the update: norms, rope, embedding
  std::uint64_t calls = 0, ns = 0, flops = 0, bytes = 0;
  // An operation among the ranks: the start of one, or the wait for one. `bytes` are those of its tensors.
  bool communication = false;
};

struct PhaseRow {
  std::string_view phase;                  // "before_forward"
  std::uint64_t planned_bytes = 0;         // tensors that the plan keeps at this point; 0 = not known
  std::uint64_t held_bytes = 0;            // in use according to the ledger
  std::uint64_t resident_first_bytes = 0;  // VmRSS in the first step, which touches most pages first
  std::uint64_t resident_bytes = 0;        // VmRSS in the last step
};

/// Planned tensor bytes at the operation with the most of them.
struct PeakEntry {
  std::int32_t layer = -1;  // -1: belongs to no layer
  Component component = Component::kWeights;
  std::uint64_t bytes = 0;
};

struct ProfileResult {
  std::uint64_t steps = 0, step_ns = 0;  // number of profiled steps, and their wall-clock time
  bool without_first = false;            // the first step ran but is not included
  std::vector<OpKindRow> kinds;
  std::vector<std::uint64_t> layer_ns;  // by layer, without the operations of the update
  std::vector<PhaseRow> phases;
  std::vector<RankTime> ranks;        // of several: means of all steps of the run, by rank
  std::vector<PeakEntry> peak;        // by layer, then component; empty: the trainer has its own plan
  std::string peak_at;                // "layers.3 swiglu_bwd, backward"
  std::uint64_t allocated_bytes = 0;  // peak according to the ledger
  std::uint64_t used_bytes = 0;       // of it: tensors and host buffers at the planned peak
  std::string trace;                  // trace file; "" when none was written
  std::uint64_t traced_first = 0, traced_last = 0;  // steps in the trace, counted from 1; 0: none

  /// Time within operations.
  std::uint64_t ops_ns() const {
    std::uint64_t ns = 0;
    for (const OpKindRow& k : kinds) ns += k.ns;
    return ns;
  }
  /// Time within steps that belongs to no operation.
  std::uint64_t between_ns() const { return step_ns > ops_ns() ? step_ns - ops_ns() : 0; }
  /// (allocated - used) / allocated.
  double fragmentation() const {
    return allocated_bytes > used_bytes
               ? static_cast<double>(allocated_bytes - used_bytes) / static_cast<double>(allocated_bytes)
               : 0;
  }
};

/// "normal" under 5 %, "moderate" to 15 %, "high" to 25 %, "critical" above. Source: docs/memory-model.md.
constexpr std::string_view fragmentation_severity(double ratio) {
  return ratio < 0.05 ? "normal" : ratio < 0.15 ? "moderate" : ratio <= 0.25 ? "high" : "critical";
}

}  // namespace trainhost::training
