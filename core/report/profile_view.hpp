// What profiling a run found, ready to be printed or written as JSON: time and work by kind of operation,
// memory at the moments of a step beside the plan, and where the peak's bytes lie. Filled by core/run;
// measures nothing itself.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost::report {

/// Sums over all profiled steps.
struct KindRow {
  std::string kind;          // "linear"
  bool elementwise = false;  // no product, and no part of the update: norms, rope, embedding
  std::uint64_t calls = 0, ns = 0, flops = 0, bytes = 0;
};

struct MomentRow {
  std::string_view moment;          // "before_forward"
  std::uint64_t planned_bytes = 0;  // tensors whose contents the plan keeps; 0 = not known
  std::uint64_t held_bytes = 0;     // taken through the ledger at that moment
  std::uint64_t resident_first_bytes =
      0;                             // VmRSS in the first step, which touches most pages for the first time
  std::uint64_t resident_bytes = 0;  // VmRSS in the last step
};

/// Planned tensor bytes at the operation with the most of them.
struct PeakCell {
  std::int32_t layer = -1;  // -1: of none
  Component component = Component::kWeights;
  std::uint64_t bytes = 0;
};

struct ProfileView {
  std::uint64_t steps = 0, step_ns = 0;  // profiled, and what they took by the host's clock
  bool without_first = false;            // a first step was made and left out
  std::vector<KindRow> kinds;
  std::vector<std::uint64_t> layer_ns;  // by layer, operations of the update left out
  std::vector<MomentRow> moments;
  std::vector<PeakCell> peak;         // by layer, then component; empty: the trainer has a plan of its own
  std::string peak_at;                // "layers.3 swiglu_bwd, backward"
  std::uint64_t allocated_bytes = 0;  // by the ledger, at its peak
  std::uint64_t used_bytes = 0;       // of it tensors and the host's own buffers at the planned peak
  std::string trace;                  // the file; "" when none was written
  std::uint64_t traced_first = 0, traced_last = 0;  // steps in it, counted from 1; 0: none

  std::uint64_t ops_ns() const;
  /// Time in steps that belongs to no operation.
  std::uint64_t between_ns() const { return step_ns > ops_ns() ? step_ns - ops_ns() : 0; }
  double fragmentation() const;  // (allocated - used) / allocated
};

/// "normal" under 5 %, "moderate" to 15 %, "high" to 25 %, "critical" above (CONTRACTS.md section 3).
std::string_view fragmentation_severity(double ratio);

struct Terminal;
std::string profile_table(const ProfileView& v, const Terminal& t);

/// The "profile" object of the done event and of summary.json.
std::string profile_json(const ProfileView& v);

}  // namespace trainhost::report
