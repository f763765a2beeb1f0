// Lifetimes of buffers, and live bytes by operation. Transient buffers: from the first to the last operation
// that uses them, inside one section. The key/value caches persist from token to token, so they span the
// generate section; gradients span micro and update, of which micro may be repeated; other persistent buffers
// span the program.
#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"
#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {
namespace {

void widen(Lifetime& l, std::uint32_t op) {
  l.first = std::min(l.first, op);
  l.last = std::max(l.last, op);
}

/// The sections in which gradients are live.
Lifetime of_gradients(const Program& p) {
  Lifetime l;
  for (const Section& s : p.sections)
    if ((s.kind == SectionKind::kMicro || s.kind == SectionKind::kUpdate) && s.begin < s.end)
      widen(l, s.begin), widen(l, s.end - 1);
  return l;
}

}  // namespace

bool writes_gradients_once(const Program& p) {
  const Section micro = p.section(SectionKind::kMicro), update = p.section(SectionKind::kUpdate);
  return p.run.accumulate == 1 && p.traits.tier == Tier::kHost && micro.begin < micro.end &&
         micro.end == update.begin && update.begin < update.end;
}

std::vector<Lifetime> lifetimes(const Program& p) {
  std::vector<Lifetime> lifetime(p.buffers.size());
  if (p.ops.empty()) return lifetime;
  for (std::uint32_t i = 0; i < p.ops.size(); ++i) {
    for (BufferId b : p.ops[i].inputs())
      if (b != kNoBuffer) widen(lifetime[b], i);
    for (BufferId b : p.ops[i].outputs()) widen(lifetime[b], i);
  }
  const Lifetime whole{0, static_cast<std::uint32_t>(p.ops.size() - 1)}, gradients = of_gradients(p);
  const bool gradients_once = writes_gradients_once(p);
  const Section generate = p.section(SectionKind::kGenerate), micro = p.section(SectionKind::kMicro);
  for (std::size_t b = 0; b < lifetime.size(); ++b) {
    assert(!lifetime[b].used() || lifetime[b].last < p.ops.size());
    const bool gradient = p.buffers[b].persistent && p.buffers[b].component == Component::kGradients;
    if (gradient && gradients_once && lifetime[b].used()) continue;
    if (p.buffers[b].persistent)
      lifetime[b] = gradient ? gradients : whole;
    else if (p.buffers[b].ring > 1 && lifetime[b].used())
      lifetime[b] = {micro.begin, micro.end - 1};  // when one instance is not in use, the other is
    else if (p.buffers[b].component == Component::kKvCache && lifetime[b].used())
      lifetime[b] = {generate.begin, generate.end - 1};
  }
  return lifetime;
}

std::vector<std::uint64_t> live_bytes(const Program& p, const std::vector<Lifetime>& lifetimes, Tier tier) {
  // First the change at each operation: bytes that become live minus bytes that no longer are. The running
  // sum is exact modulo 2^64.
  std::vector<std::uint64_t> live(p.ops.size() + 1, 0);
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].storage == Storage::kExternal || p.buffers[b].tier != tier || !lifetimes[b].used())
      continue;
    live[lifetimes[b].first] += p.buffers[b].bytes();
    live[lifetimes[b].last + 1] -= p.buffers[b].bytes();
  }
  for (std::size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  assert(live.back() == 0 && "every buffer that becomes live also ends");
  live.pop_back();
  return live;
}

}  // namespace trainhost::placement
