// The checker's map of the arena: which buffer owns each byte range at the current operation. A write takes
// its range from the previous owners; a later read of a buffer that lost bytes proves that the plan is wrong.
// Does not use the lifetimes of the plan.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

class ArenaMap {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  ArenaMap(const Program& p, const MemoryPlan& plan)
      : p_(p), plan_(plan), lost_to_(2 * p.buffers.size(), kNone) {}

  /// Index of an instance. Micro-batches alternate between the instances of a ring; other buffers have one.
  std::size_t index(BufferId b, std::uint32_t instance) const {
    return 2 * std::size_t{b} + (p_[b].ring > 1 ? instance : 0);
  }
  /// Operation `op` writes this instance of b, which now owns its bytes.
  void write(BufferId b, std::uint32_t op, std::uint32_t instance);
  /// The operation that overwrote bytes of this instance since it was last written, or kNone.
  std::uint32_t lost_to(BufferId b, std::uint32_t instance) const { return lost_to_[index(b, instance)]; }
  bool overlap(BufferId a, BufferId b) const;

 private:
  struct Piece {
    std::uint64_t end;
    std::size_t owner;  // index()
  };
  using Pieces = std::map<std::uint64_t, Piece>;  // by start offset; disjoint
  void cut(Pieces& pieces, std::uint64_t begin, std::uint64_t end, std::size_t keep, std::uint32_t op);

  const Program& p_;
  const MemoryPlan& plan_;
  std::map<Tier, Pieces> tiers_;
  std::vector<std::uint32_t> lost_to_;  // by index()
};

}  // namespace trainhost::placement
