// A report's leaves added up by component, as tables and charts show them: what each takes at the tier's
// peak.
#pragma once
#include <map>
#include <vector>

#include "core/base/memory_report.hpp"

namespace trainhost::report {

inline constexpr Tier kAllTiers[] = {Tier::kDevice, Tier::kPinned, Tier::kHost, Tier::kDisk};

struct ComponentPart {
  std::uint64_t bytes = 0;
  Claim claim = Claim::kExact;  // of its least certain leaf
};

inline std::map<Component, ComponentPart> parts_of(const MemoryReport& r, Tier tier) {
  std::map<Component, ComponentPart> out;
  for (const MemoryEntry& n : r.entries) {
    if (n.tier != tier) continue;
    ComponentPart& p = out[n.component];
    p.bytes += n.at_peak();
    if (static_cast<unsigned>(n.claim) > static_cast<unsigned>(p.claim)) p.claim = n.claim;
  }
  return out;
}

/// Leaves with the largest at the peak first; what is nothing there by the most it ever takes. Ties stay in
/// order.
std::vector<const MemoryEntry*> largest_first(const MemoryReport& r);

}  // namespace trainhost::report
