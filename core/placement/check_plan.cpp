// Entry of the checker: structure, shapes, offsets, lifetimes, then the program run on symbolic values
// (check_values.cpp). Includes nothing of the builders, recompute, lifetimes or the placer: its facts are
// derived independently.
#include "core/placement/check_plan.hpp"

#include "core/placement/check_findings.hpp"
#include "core/placement/check_values.hpp"

namespace trainhost::placement {
namespace {

/// The totals of one tier.
void check_totals(const Program& p, const TierPlan& t, Findings& f) {
  std::uint64_t persistent = 0;
  for (const Buffer& x : p.buffers)
    if (x.persistent && x.tier == t.tier && x.storage != Storage::kExternal) persistent += x.bytes();
  if (persistent != t.persistent_bytes) f.add("persistent_bytes is not the sum of the persistent buffers");
  if (t.peak_tensor_bytes > t.arena_bytes) f.add("the live tensor bytes at the peak exceed the arena");
}

void check_offsets(const Program& p, const MemoryPlan& plan, Findings& f) {
  if (plan.offset.size() != p.buffers.size() || plan.lifetime.size() != p.buffers.size())
    return f.add("the plan is for another program: it has " + std::to_string(plan.offset.size()) +
                 " offsets for " + std::to_string(p.buffers.size()) + " buffers");
  for (BufferId b = 0; b < p.buffers.size(); ++b) {
    const Buffer& x = p[b];
    if (x.storage == Storage::kExternal) {
      if (plan.offset[b] != UINT64_MAX) f.add(x.name() + " is external but has an offset");
      continue;
    }
    const std::uint64_t arena = plan.of(x.tier).arena_bytes;
    if (plan.offset[b] > arena || x.bytes() > arena - plan.offset[b])
      f.add(x.name() + " is not inside the arena");
    else if (plan.offset[b] % p.traits.alignment)
      f.add(x.name() + " at " + std::to_string(plan.offset[b]) + " is not aligned to " +
            std::to_string(p.traits.alignment));
  }
  check_totals(p, plan, f);
  for (const TierPlan& t : plan.others) check_totals(p, t, f);
  if (plan.digest != digest(p, plan.offset)) f.add("the digest does not match the program and its offsets");
}

/// Storages that allocate buffers one by one rely on the lifetimes of the plan: every use must be inside.
void check_lifetimes(const Program& p, const MemoryPlan& plan, Findings& f) {
  for (std::uint32_t i = 0; i < p.ops.size(); ++i)
    for (std::span<const BufferId> side : {p.ops[i].inputs(), p.ops[i].outputs()})
      for (BufferId b : side)
        if (b != kNoBuffer && (i < plan.lifetime[b].first || i > plan.lifetime[b].last))
          f.at(i, "uses " + p[b].name() + " outside its lifetime");
}

}  // namespace

std::vector<std::string> check(const Program& p, const MemoryPlan& plan) {
  Findings f(p);
  // Each stage relies on the previous one: indices are valid after check_structure(), sizes after
  // check_shapes(), offsets after check_offsets().
  check_structure(p, f);
  if (f.none()) check_shapes(p, f);
  if (f.none()) check_offsets(p, plan, f);
  if (f.none()) {
    check_lifetimes(p, plan, f);
    check_values(p, plan, f);
  }
  return f.take();
}

}  // namespace trainhost::placement
