// When the bytes of each buffer matter. Transient buffers: from the first to the last operation that names
// them, all inside one section. Caches of generation carry over from token to token, so they span their
// section; gradients span micro and update, both of which run again and again; everything else that is
// persistent spans the program.
#include <algorithm>

#include "core/base/checked.hpp"
#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {
namespace {

void widen(Lifetime& l, std::uint32_t op) {
  l.first = std::min(l.first, op);
  l.last = std::max(l.last, op);
}

/// Ops of all sections in which gradients are kept.
Lifetime of_gradients(const Program& p) {
  Lifetime l;
  for (const Section& s : p.sections)
    if ((s.kind == SectionKind::kMicro || s.kind == SectionKind::kUpdate) && s.begin < s.end)
      widen(l, s.begin), widen(l, s.end - 1);
  return l;
}

}  // namespace

std::vector<Lifetime> lifetimes(const Program& p) {
  std::vector<Lifetime> life(p.buffers.size());
  if (p.ops.empty()) return life;
  for (std::uint32_t i = 0; i < p.ops.size(); ++i) {
    for (BufferId b : p.ops[i].inputs())
      if (b != kNoBuffer) widen(life[b], i);
    for (BufferId b : p.ops[i].outputs()) widen(life[b], i);
  }
  const Lifetime whole{0, static_cast<std::uint32_t>(p.ops.size() - 1)}, gradients = of_gradients(p);
  const Section generate = p.section(SectionKind::kGenerate), micro = p.section(SectionKind::kMicro);
  for (std::size_t b = 0; b < life.size(); ++b) {
    if (p.buffers[b].persistent)
      life[b] = p.buffers[b].component == Component::kGradients ? gradients : whole;
    else if (p.buffers[b].ring > 1 && life[b].used())
      life[b] = {micro.begin, micro.end - 1};  // while one instance is idle, the other is not
    else if (p.buffers[b].component == Component::kKvCache && life[b].used())
      life[b] = {generate.begin, generate.end - 1};
  }
  return life;
}

std::vector<std::uint64_t> live_bytes(const Program& p, const std::vector<Lifetime>& lifetimes, Tier tier) {
  // Differences first: what is born minus what died before each op; modulo 2^64 the running sum is exact.
  std::vector<std::uint64_t> live(p.ops.size() + 1, 0);
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].storage == Storage::kExternal || p.buffers[b].tier != tier || !lifetimes[b].used())
      continue;
    live[lifetimes[b].first] += p.buffers[b].bytes();
    live[lifetimes[b].last + 1] -= p.buffers[b].bytes();
  }
  for (std::size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  live.pop_back();
  return live;
}

}  // namespace trainhost::placement
