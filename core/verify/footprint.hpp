// Measures the memory that a session allocates while it is created, initialised, takes one step, evaluates
// and saves. The ledger counts every buffer where it is allocated and does not know the plan. Most trainers
// allocate one arena, so only the trainer's own report can say what a byte is for. A byte that the report
// does not name counts as the component under test, so that an incomplete report cannot hide bytes.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/base/memory_report.hpp"
#include "core/verify/context.hpp"

namespace trainhost::verify {

struct Footprint {
  RunSpec run;                               // as resolved
  MemoryReport report;                       // the trainer's plan of this run
  bool f32_storage = false;                  // weights are stored in f32 in every precision
  std::uint64_t ledger_bytes = 0;            // peak of the ledger over all tiers together
  std::uint64_t runtime_bytes = 0;           // resident beyond the ledger; 0 for a trainer on a device
  std::uint64_t reported_runtime_bytes = 0;  // of the device context, as the trainer reports it
  std::uint64_t weight_elements = 0;         // that save() gave, counting each tensor once
  std::uint64_t moment_elements = 0;         // of both moments
  std::string duplicate_tensor;              // "lm_head.weight" if save() gave it for a tied model; else ""

  /// The peak of the ledger minus the bytes that the report assigns to other components than `names`.
  std::uint64_t bytes_of(std::initializer_list<Component> names) const;
};

/// How much of a run is measured. kCreated: creation and save. kTrained: also a step and an evaluation.
/// kWhole: also the host's own buffers that training allocates.
enum class Measured { kCreated, kTrained, kWhole };

/// Trains on arbitrary ids, from the weights of the run or random ones. Throws CheckSkipped if memory is too
/// small.
Footprint measure_footprint(Context& context, const runfile::RunConfig& c, const std::string& mode,
                            Measured how);

}  // namespace trainhost::verify
