// The memory plan: an offset for every arena buffer of a program, found before anything runs.
// Deterministic; the checker (check_plan.hpp) was written without looking at the placer and proves its
// result.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/memory_report.hpp"
#include "core/step/program.hpp"

namespace trainhost::placement {

// Every function of this module works on a step program: its types are used here without a prefix.
using namespace step;

/// Ops [first, last] between which a buffer's bytes matter, both inclusive, as indices into Program::ops.
/// Persistent buffers: [0, ops-1], gradients through micro and update alone: eval and generate may use their
/// place. Never used: first > last.
struct Lifetime {
  std::uint32_t first = UINT32_MAX, last = 0;
  bool used() const { return first <= last; }
  bool overlaps(const Lifetime& o) const { return used() && o.used() && first <= o.last && o.first <= last; }
};
std::vector<Lifetime> lifetimes(const Program& p);

/// One arena: what a single allocation in this tier must hold.
struct TierPlan {
  Tier tier{};
  std::uint64_t arena_bytes = 0;
  std::uint64_t persistent_bytes = 0;  // tensor bytes of persistent buffers
  std::uint64_t peak_tensor_bytes =
      0;                      // most tensor bytes alive at one op (shape x type, no padding, no holes)
  std::uint32_t peak_op = 0;  // where
  std::uint64_t fragmentation() const { return arena_bytes - peak_tensor_bytes; }
};

/// The figures by name are those of the compute tier, the trainer's; other tiers have arenas of their own.
struct MemoryPlan : TierPlan {
  std::vector<std::uint64_t>
      offset;  // by BufferId, bytes from its tier's arena; UINT64_MAX for external buffers
  std::vector<Lifetime> lifetime;  // by BufferId
  std::vector<TierPlan> others;    // tiers with at least one buffer, in the order of Tier
  std::uint64_t digest = 0;        // of program and offsets
  /// Zeros for a tier without buffers.
  TierPlan of(Tier t) const;
};
/// `enough`: bytes of the compute tier's arena below which no better packing is looked for; a plan made
/// without it has never more than one made with it. For who only asks whether a run fits.
MemoryPlan place(const Program& p, std::uint64_t enough = 0);

/// Tensor bytes of one tier that are alive during each op.
std::vector<std::uint64_t> live_bytes(const Program& p, const std::vector<Lifetime>& lifetimes, Tier tier);

/// The account: a tree of leaves by role (layers folded), component and phases, shares at the peak,
/// fragmentation. The leaves of a tier sum to its total, which is its arena to the byte.
MemoryReport account(const Program& p, const MemoryPlan& plan);

}  // namespace trainhost::placement
