// The memory plan of a program: an offset for every arena buffer, the arena size of every memory tier and the
// peak. place() computes it before anything runs; check_plan.hpp verifies it independently.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/memory_report.hpp"
#include "core/step/program.hpp"

namespace trainhost::placement {

// Every function of this module works on a step program, so the names of core/step are used without a prefix.
using namespace step;

/// Operations [first, last] during which a buffer's contents are needed, both inclusive, as indices into
/// Program::ops. Persistent buffers: the whole program; gradients: only the sections micro and update, so
/// that eval and generate can use their bytes, or less (writes_gradients_once()). A buffer without a use has
/// first > last.
struct Lifetime {
  std::uint32_t first = UINT32_MAX, last = 0;
  bool used() const { return first <= last; }
  bool overlaps(const Lifetime& o) const { return used() && o.used() && first <= o.last && o.first <= last; }
};
std::vector<Lifetime> lifetimes(const Program& p);

/// True if an update has one micro-batch and the trainer computes in host memory. A gradient is then live
/// from its first contribution in the backward pass to its update, and uses the bytes of logits and of
/// activations that are no longer needed. (On a device the memory above the persistent buffers has no
/// contents between sections.)
bool writes_gradients_once(const Program& p);

/// The arena of one memory tier: a single allocation of arena_bytes.
struct TierPlan {
  Tier tier{};
  std::uint64_t arena_bytes = 0;
  std::uint64_t persistent_bytes = 0;  // tensor bytes of persistent buffers
  std::uint64_t peak_tensor_bytes =
      0;                      // maximum over operations of live tensor bytes, without padding and gaps
  std::uint32_t peak_op = 0;  // the operation at which it is reached, index into Program::ops
  /// Padding and gaps: bytes of the arena that no live tensor uses at the peak.
  std::uint64_t fragmentation() const { return arena_bytes - peak_tensor_bytes; }
};

/// The inherited fields describe the trainer's compute tier; the arenas of other tiers are in `others`.
struct MemoryPlan : TierPlan {
  std::vector<std::uint64_t>
      offset;  // by BufferId, bytes from the start of its tier's arena; UINT64_MAX: external
  std::vector<Lifetime> lifetime;  // by BufferId
  std::vector<TierPlan> others;    // tiers with at least one buffer, in the order of Tier
  std::uint64_t digest = 0;        // of program and offsets
  /// The arena of a tier; all zero for a tier without buffers.
  TierPlan of(Tier t) const;
};
/// Computes the plan. Deterministic. Errors: an error if sizes exceed 63 bits.
/// `enough`: the search for a better packing of the compute tier stops at an arena of this many bytes. For
/// callers that only ask whether a run fits; without it the arena is never larger.
MemoryPlan place(const Program& p, std::uint64_t enough = 0);

/// Live tensor bytes of one tier, by operation.
std::vector<std::uint64_t> live_bytes(const Program& p, const std::vector<Lifetime>& lifetimes, Tier tier);

/// The memory breakdown of a plan: one entry per role (all layers together) with component, phases, maximum
/// and bytes at the peak, and one for fragmentation. The entries of a tier at the peak sum to its arena
/// exactly.
MemoryReport memory_breakdown(const Program& p, const MemoryPlan& plan);

}  // namespace trainhost::placement
