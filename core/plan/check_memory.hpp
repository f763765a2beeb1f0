// The arena as the checker sees it: which buffer's bytes lie where, right now. A write takes its bytes from
// whoever had them; a later read of a buffer that lost bytes is a broken plan. No lifetimes are needed, or
// believed.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "core/plan/memory_plan.hpp"

namespace trainhost::plan {

class ArenaMap {
 public:
  static constexpr std::uint32_t kNobody = UINT32_MAX;

  ArenaMap(const Program& p, const MemoryPlan& plan)
      : p_(p), plan_(plan), lost_to_(p.buffers.size(), kNobody) {}

  /// b's bytes become b's; `op` is who writes.
  void write(BufferId b, std::uint32_t op);
  /// The operation that took bytes of b since b was last written, or kNobody.
  std::uint32_t lost_to(BufferId b) const { return lost_to_[b]; }
  bool overlap(BufferId a, BufferId b) const;

 private:
  struct Piece {
    std::uint64_t end;
    BufferId owner;
  };
  using Pieces = std::map<std::uint64_t, Piece>;  // by begin, disjoint
  void cut(Pieces& pieces, std::uint64_t begin, std::uint64_t end, BufferId keep, std::uint32_t op);

  const Program& p_;
  const MemoryPlan& plan_;
  std::map<Tier, Pieces> tiers_;
  std::vector<std::uint32_t> lost_to_;     // by BufferId
};

}  // namespace trainhost::plan
