// See live_bytes.hpp. A moment lies between two operations: what matters is what both sides of it need.
#include "core/placement/live_bytes.hpp"

#include <map>

#include "core/base/checked.hpp"

namespace trainhost::placement {
namespace {

bool in_compute_tier(const Program& p, const Buffer& b) {
  return b.storage != Storage::kExternal && b.tier == p.traits.tier;
}

/// Arena bytes of buffers for which `keeps` holds.
template <class F>
std::uint64_t sum(const Program& p, const std::vector<Lifetime>& life, F&& keeps) {
  std::uint64_t bytes = 0;
  for (std::size_t b = 0; b < p.buffers.size(); ++b)
    if (in_compute_tier(p, p.buffers[b]) && life[b].used() && keeps(p.buffers[b], life[b]))
      bytes = checked_add(bytes, p.buffers[b].bytes());
  return bytes;
}

std::uint64_t kept_before(const Program& p, const std::vector<Lifetime>& life, std::uint32_t op) {
  return sum(p, life, [op](const Buffer&, const Lifetime& l) { return l.first < op && l.last >= op; });
}

}  // namespace

StepMoments step_moments(const Program& p, const std::vector<Lifetime>& life) {
  StepMoments m;
  const Section micro = p.section(SectionKind::kMicro), update = p.section(SectionKind::kUpdate);
  if (micro.begin == micro.end || update.begin == update.end) return m;
  std::uint32_t backward = micro.begin;
  while (backward < micro.end && p.ops[backward].phase == kForward) ++backward;
  const auto persists = [](const Buffer& b, const Lifetime&) { return b.persistent; };
  const auto stays = [](const Buffer& b, const Lifetime&) {
    return b.persistent && b.component != Component::kGradients;
  };
  m.before_forward = m.after_update = sum(p, life, stays);
  m.before_later_forward = m.after_backward = sum(p, life, persists);
  m.after_forward = kept_before(p, life, backward);
  return m;
}

std::vector<LayerShare> live_by_layer(const Program& p, const std::vector<Lifetime>& life, std::uint32_t op) {
  std::map<std::pair<std::int32_t, Component>, std::uint64_t> cells;
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    const Buffer& x = p.buffers[b];
    if (!in_compute_tier(p, x) || !life[b].overlaps({op, op})) continue;
    cells[{x.layer, x.component}] += x.bytes();
  }
  std::vector<LayerShare> out;
  for (const auto& [key, bytes] : cells) out.push_back({key.first, key.second, bytes});
  return out;
}

}  // namespace trainhost::placement
