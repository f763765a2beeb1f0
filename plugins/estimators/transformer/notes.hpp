// What the `transformer` estimator says beside its numbers: what is counted, what is approximate, and how far
// it is from the exact plan where there is one. Sentences alone; no size is changed here, but that memory of
// a trainer on the host is the host's.
#pragma once
#include "core/base/memory_report.hpp"
#include "core/model/architecture.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::transformer {

/// For a trainer whose arena is in host memory: device leaves become the host's; without a device there is no
/// runtime of one, and an arena placed before the run has no allocator's gaps.
void move_to_host(MemoryReport& r);

/// traits: null where no trainer was named.
void add_notes(MemoryReport& r, const model::Architecture& a, const ModelSpec& m, const RunSpec& run,
               const TrainerTraits* traits);

}  // namespace trainhost::transformer
