// The allocations and frees of one planned step, in order: for PyTorch's memory visualiser. Only a plan of a
// step program has them; closed forms know sizes and no times.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.hpp"
#include "core/model/run_spec.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

struct Estimate;

/// An allocation of one buffer, or its end. Addresses count from the start of the arena.
struct SnapshotEvent {
  bool allocation = false;
  std::uint32_t buffer = 0;  // index of MemorySnapshot::buffers
  std::string
      operation;  // the first that needs it, or the last: "layers.3 attention"; "" before the first one
  Phase phase = kLoad;
};

struct SnapshotBuffer {
  std::string name;  // "layers.3.qkv"
  Component component{};
  std::uint64_t address = 0, bytes = 0;
  bool kept = false;  // at the end of the step too
};

/// Everything is in the compute tier. Buffers of the step in the order of allocation: first what exists
/// before it.
struct MemorySnapshot {
  std::uint64_t total_bytes = 0;  // the arena and the host's own buffers behind it; Estimate::compute_bytes
  std::vector<SnapshotBuffer> buffers;
  std::vector<SnapshotEvent> events;
};

/// One micro-batch and the update of the run that `e` plans. Throws usage_error if `e` is no plan of a step
/// program, which `option` asks for.
MemorySnapshot memory_snapshot(const runfile::RunConfig& c, const TrainerTraits& traits, const Estimate& e,
                               const char* option);

}  // namespace trainhost::planning
