// The memory breakdown of a plan: one entry per role, all layers together, with its maximum and its bytes at
// the peak. Padding and gaps are an entry of their own, so that the entries of a tier sum to its arena
// exactly (docs/memory-model.md, "Components"). Bytes are tensor bytes; only the entry "fragmentation"
// contains padding.
#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <unordered_map>

#include "core/placement/memory_plan.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/size_formula.hpp"

namespace trainhost::placement {
namespace {

struct PhaseRun {
  std::uint32_t first, last;  // ops, inclusive
  Phase phase;
};

/// Maximal runs of operations in one phase; a program has few, so lifetimes are compared with runs, not with
/// operations.
std::vector<PhaseRun> phase_runs(const Program& p) {
  std::vector<PhaseRun> runs;
  for (std::uint32_t i = 0; i < p.ops.size(); ++i) {
    if (runs.empty() || runs.back().phase != p.ops[i].phase) runs.push_back({i, i, p.ops[i].phase});
    runs.back().last = i;
  }
  return runs;
}

std::uint32_t phases_in(const std::vector<PhaseRun>& runs, const Lifetime& l) {
  std::uint32_t mask = 0;
  for (const PhaseRun& r : runs)
    if (l.overlaps({r.first, r.last})) mask |= r.phase;
  return mask;
}

/// Buffers of one role and copy, of all layers.
struct Group {
  std::vector<BufferId> members;
};

/// Groups in the order of their first buffer. Role names are static strings, so `latest` avoids most look-ups
/// in `index` by comparing their addresses; a second address of the same text costs one more look-up.
std::vector<Group> group_by_role(const Program& p, const MemoryPlan& plan) {
  std::vector<Group> groups;
  std::map<std::tuple<std::string_view, std::uint32_t, bool, Tier>, std::size_t> index;
  std::unordered_map<const char*, std::pair<std::tuple<std::uint32_t, bool, Tier>, std::size_t>> latest;
  for (BufferId b = 0; b < p.buffers.size(); ++b) {
    const Buffer& buffer = p.buffers[b];
    if (buffer.storage == Storage::kExternal || !plan.lifetime[b].used()) continue;
    const std::tuple kind{buffer.copy, buffer.layer >= 0, buffer.tier};
    auto [known, fresh_role] = latest.try_emplace(buffer.role);
    if (fresh_role || known->second.first != kind) {
      const auto [at, fresh] =
          index.try_emplace({buffer.role, buffer.copy, buffer.layer >= 0, buffer.tier}, groups.size());
      if (fresh) groups.emplace_back();
      known->second = {kind, at->second};
    }
    groups[known->second.second].members.push_back(b);
  }
  return groups;
}

/// Sorts by operation. Those of one role follow the layers, upwards or downwards, so that most are sorted.
void sort_changes(std::vector<std::pair<std::uint32_t, std::uint64_t>>& changes) {
  const auto earlier = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (std::is_sorted(changes.begin(), changes.end(), earlier)) return;
  if (std::is_sorted(changes.rbegin(), changes.rend(), earlier))
    std::reverse(changes.begin(), changes.end());
  else
    std::sort(changes.begin(), changes.end(), earlier);
}

/// Maximum over operations of the group's live bytes. Buffers of one role in different layers are mostly live
/// at different times, so this is less than their sum. The end of a buffer is after the starts of the same
/// operation and before those of the next.
std::uint64_t max_live_bytes(const Program& p, const MemoryPlan& plan, const Group& g) {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> starts, ends;  // operation, bytes
  starts.reserve(g.members.size()), ends.reserve(g.members.size());
  for (BufferId b : g.members) {
    const std::uint64_t bytes = p[b].bytes();
    starts.emplace_back(plan.lifetime[b].first, bytes);
    ends.emplace_back(plan.lifetime[b].last, bytes);
  }
  sort_changes(starts), sort_changes(ends);
  std::uint64_t live = 0, high = 0;
  auto end = ends.begin();
  for (const auto& [op, bytes] : starts) {
    for (; end->first < op; ++end) live -= end->second;
    high = std::max(high, live += bytes);
  }
  return high;
}

std::string entry_name(const Buffer& b) {
  if (b.layer < 0) return b.name();
  Buffer any = b;
  any.layer = 0;
  std::string n = any.name();
  return n.replace(n.find("layers.0."), 9, "layers[].");
}

/// `like`: any member of the group; all have the same role, tier and component.
MemoryEntry entry_of(const Program& p, const MemoryPlan& plan, const std::vector<PhaseRun>& runs,
                     const Group& g) {
  const Buffer& like = p[g.members.front()];
  const std::uint32_t peak = plan.of(like.tier).peak_op;
  MemoryEntry n;
  n.tier = like.tier;
  n.component = like.component;
  n.name = entry_name(like);
  for (BufferId b : g.members) {
    n.phases |= phases_in(runs, plan.lifetime[b]);
    if (plan.lifetime[b].overlaps({peak, peak})) n.bytes_at_peak += p[b].bytes();
  }
  // Weights and optimizer state are also live while they are loaded and saved; gradients are not.
  if (like.persistent && like.component != Component::kGradients) n.phases |= kLoad | kSave;
  n.bytes = max_live_bytes(p, plan, g);
  n.formula = formula(p, like, like.bytes() ? n.bytes / like.bytes() : 0);
  return n;
}

}  // namespace

/// Entries in the order of their first buffer, then fragmentation, per tier. All are exact: lo = bytes = hi.
MemoryReport memory_breakdown(const Program& p, const MemoryPlan& plan) {
  MemoryReport r;
  r.digest = plan.digest;
  const auto add = [&](MemoryEntry n) {
    n.id = static_cast<std::uint32_t>(r.entries.size() + 1);
    n.lo = n.hi = n.bytes;
    n.has_at_peak = true;
    r.entries.push_back(std::move(n));
  };
  const std::vector<PhaseRun> runs = phase_runs(p);
  for (const Group& g : group_by_role(p, plan)) add(entry_of(p, plan, runs, g));
  const auto tier = [&](const TierPlan& t) {
    MemoryEntry gaps;
    gaps.tier = t.tier;
    gaps.component = Component::kFragmentation;
    gaps.name = "fragmentation";
    gaps.formula = "arena - live tensors at the peak = " + std::to_string(t.arena_bytes) + " - " +
                   std::to_string(t.peak_tensor_bytes);
    gaps.bytes = gaps.bytes_at_peak = t.fragmentation();
    for (const PhaseRun& run : runs) gaps.phases |= run.phase;
    add(std::move(gaps));
    r.tiers.push_back({t.tier, t.arena_bytes, p.ops.empty() ? kLoad : p.ops[t.peak_op].phase});
  };
  tier(plan);
  for (const TierPlan& t : plan.others) tier(t);
  return r;
}

}  // namespace trainhost::placement
