// See live_bytes.hpp. A phase boundary is between two operations: a buffer counts if it is live before and
// after.
#include "core/placement/live_bytes.hpp"

#include <algorithm>
#include <map>

#include "core/base/checked.hpp"

namespace trainhost::placement {
namespace {

bool in_compute_tier(const Program& p, const Buffer& b) {
  return b.storage != Storage::kExternal && b.tier == p.traits.tier;
}

/// Tensor bytes of the buffers of the compute tier for which `keeps` is true.
template <class F>
std::uint64_t sum(const Program& p, const std::vector<Lifetime>& lifetime, F&& keeps) {
  std::uint64_t bytes = 0;
  // Only what the plan puts into the arena: no external and no unused buffers.
  for (std::size_t b = 0; b < p.buffers.size(); ++b)
    if (in_compute_tier(p, p.buffers[b]) && lifetime[b].used() && keeps(p.buffers[b], lifetime[b]))
      bytes = checked_add(bytes, p.buffers[b].bytes());
  return bytes;
}

/// Live before and after operation `op`: not those that begin or end with it.
std::uint64_t live_across(const Program& p, const std::vector<Lifetime>& lifetime, std::uint32_t op) {
  return sum(p, lifetime, [op](const Buffer&, const Lifetime& l) { return l.first < op && l.last >= op; });
}

}  // namespace

PhaseLiveBytes live_bytes_by_phase(const Program& p, const std::vector<Lifetime>& lifetime) {
  PhaseLiveBytes m;
  const Section micro = p.section(SectionKind::kMicro), update = p.section(SectionKind::kUpdate);
  if (micro.begin == micro.end || update.begin == update.end) return m;
  const auto is_persistent = [](const Buffer& b, const Lifetime&) { return b.persistent; };
  // Gradients are written anew in each update: they are not counted between updates.
  const auto outlives_update = [](const Buffer& b, const Lifetime&) {
    return b.persistent && b.component != Component::kGradients;
  };
  // Before the first forward pass gradients hold nothing; before later ones they do.
  m.before_forward = m.after_update = sum(p, lifetime, outlives_update);
  m.before_later_forward = m.after_backward = sum(p, lifetime, is_persistent);
  m.after_forward = live_across(p, lifetime, backward_begin(p));
  return m;
}

std::vector<LayerShare> live_by_layer(const Program& p, const std::vector<Lifetime>& lifetime,
                                      std::uint32_t op) {
  std::map<std::pair<std::int32_t, Component>, std::uint64_t> bytes_of;
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    const Buffer& x = p.buffers[b];
    if (!in_compute_tier(p, x) || !lifetime[b].overlaps({op, op})) continue;
    bytes_of[{x.layer, x.component}] += x.bytes();
  }
  std::vector<LayerShare> out;
  for (const auto& [key, bytes] : bytes_of) out.push_back({key.first, key.second, bytes});
  return out;
}

std::vector<std::array<std::uint64_t, kLiveComponents>> live_by_component(
    const Program& p, const std::vector<Lifetime>& lifetime, std::span<const std::uint32_t> ops) {
  // First the changes from one of the operations to the next; the running sum is exact modulo 2^64.
  std::vector<std::array<std::uint64_t, kLiveComponents>> live(ops.size() + 1);
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    const Buffer& x = p.buffers[b];
    if (!in_compute_tier(p, x) || !lifetime[b].used()) continue;
    const auto begin = std::ranges::lower_bound(ops, lifetime[b].first) - ops.begin();
    const auto end = std::ranges::upper_bound(ops, lifetime[b].last) - ops.begin();
    const auto component = static_cast<std::size_t>(x.component);
    live[static_cast<std::size_t>(begin)][component] += x.bytes();
    live[static_cast<std::size_t>(end)][component] -= x.bytes();
  }
  for (std::size_t i = 1; i < live.size(); ++i)
    for (std::size_t c = 0; c < kLiveComponents; ++c) live[i][c] += live[i - 1][c];
  live.pop_back();
  return live;
}

}  // namespace trainhost::placement
