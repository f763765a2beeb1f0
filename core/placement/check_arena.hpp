// The arena as the checker sees it: which buffer's bytes lie where, right now. A write takes its bytes from
// whoever had them; a later read of a buffer that lost bytes is a broken plan. No lifetimes are needed, or
// believed.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

class ArenaMap {
 public:
  static constexpr std::uint32_t kNobody = UINT32_MAX;

  ArenaMap(const Program& p, const MemoryPlan& plan)
      : p_(p), plan_(plan), lost_to_(2 * p.buffers.size(), kNobody) {}

  /// Micro-batches take turns with the instances of a ring; a buffer that is none has the one.
  std::size_t index(BufferId b, std::uint32_t instance) const {
    return 2 * std::size_t{b} + (p_[b].ring > 1 ? instance : 0);
  }
  /// Bytes of this instance of b become its; `op` is who writes.
  void write(BufferId b, std::uint32_t op, std::uint32_t instance);
  /// The operation that took bytes of it since it was last written, or kNobody.
  std::uint32_t lost_to(BufferId b, std::uint32_t instance) const { return lost_to_[index(b, instance)]; }
  bool overlap(BufferId a, BufferId b) const;

 private:
  struct Piece {
    std::uint64_t end;
    std::size_t owner;  // index()
  };
  using Pieces = std::map<std::uint64_t, Piece>;  // by begin, disjoint
  void cut(Pieces& pieces, std::uint64_t begin, std::uint64_t end, std::size_t keep, std::uint32_t op);

  const Program& p_;
  const MemoryPlan& plan_;
  std::map<Tier, Pieces> tiers_;
  std::vector<std::uint32_t> lost_to_;  // by index()
};

}  // namespace trainhost::placement
