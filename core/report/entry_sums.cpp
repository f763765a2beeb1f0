// See entry_sums.hpp.
#include "core/report/entry_sums.hpp"

#include <algorithm>
#include <tuple>

namespace trainhost::report {

std::map<Component, ComponentBytes> component_bytes_of(const MemoryReport& r, Tier tier) {
  std::map<Component, ComponentBytes> out;
  for (const MemoryEntry& n : r.entries) {
    if (n.tier != tier) continue;
    ComponentBytes& sum = out[n.component];
    sum.bytes += n.at_peak();
    sum.claim = std::max(sum.claim, n.claim);
  }
  return out;
}

std::vector<const MemoryEntry*> largest_first(const MemoryReport& r) {
  std::vector<const MemoryEntry*> out;
  for (const MemoryEntry& n : r.entries) out.push_back(&n);
  std::stable_sort(out.begin(), out.end(), [](const MemoryEntry* a, const MemoryEntry* b) {
    return std::tuple(a->at_peak(), a->bytes) > std::tuple(b->at_peak(), b->bytes);
  });
  return out;
}

}  // namespace trainhost::report
