// Notes of the `transformer` estimator: what is exact, what is approximate, and the difference from the exact
// plan where there is one. move_to_host() is the only function here that changes the entries.
#pragma once
#include "core/base/memory_report.hpp"
#include "core/model/architecture.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::transformer {

/// For a trainer whose arena is in host memory: entries of the device move to the host; entries of the device
/// runtime and of allocator gaps are removed (there is no device, and the arena is placed before the run).
void move_to_host(MemoryReport& r);

/// traits: null where no trainer was named.
void add_notes(MemoryReport& r, const model::Architecture& a, const ModelSpec& m, const RunSpec& run,
               const TrainerTraits* traits);

}  // namespace trainhost::transformer
