// Sums over a memory report. The total of a tier is the stated peak, else the largest phase of its entries;
// headings (entries with children) are not counted.
#include "core/base/memory_report.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_set>

#include "core/base/checked.hpp"

namespace trainhost {
namespace {

/// Calls visit(entry) for each entry that is not a heading. Headings repeat the bytes of their children.
template <class Visit>
void for_each_counted(const std::vector<MemoryEntry>& entries, Visit visit) {
  std::unordered_set<std::uint32_t> parents;
  for (const MemoryEntry& n : entries) parents.insert(n.parent);
  for (const MemoryEntry& n : entries)
    if (!parents.count(n.id)) visit(n);
}

/// Peak of a tier: the sum of bytes_at_peak if all its entries have it, else the largest sum over a phase. An
/// entry without phases is live in all.
std::uint64_t peak_of_entries(const std::vector<MemoryEntry>& entries, Tier tier) {
  std::uint64_t at_peak = 0, largest = 0;
  bool all_at_peak = true;
  // Bits 0 to 6 of Phase.
  std::array<std::uint64_t, 7> by_phase{};
  for_each_counted(entries, [&](const MemoryEntry& n) {
    if (n.tier != tier) return;
    all_at_peak = all_at_peak && n.has_at_peak;
    at_peak = checked_add(at_peak, n.bytes_at_peak, "a tier's total");
    const std::uint32_t phases = n.phases ? n.phases : kAlways;
    for (std::size_t p = 0; p < by_phase.size(); ++p)
      if (phases >> p & 1) by_phase[p] = checked_add(by_phase[p], n.bytes, "a tier's total");
  });
  for (std::uint64_t b : by_phase) largest = std::max(largest, b);
  return all_at_peak ? at_peak : largest;
}

}  // namespace

std::uint64_t MemoryReport::tier_bytes(Tier t) const {
  std::uint64_t sum = 0;
  for (const TierPeak& p : tiers)
    if (p.tier == t) sum = checked_add(sum, p.bytes, "a tier's total");
  // An estimator that states no tiers gets sums of its entries.
  return tiers.empty() ? peak_of_entries(entries, t) : sum;
}

std::uint64_t MemoryReport::total_bytes() const {
  std::uint64_t sum = 0;
  for (Tier t : kAllTiers) sum = checked_add(sum, tier_bytes(t), "the total");
  return sum;
}

std::uint64_t MemoryReport::component_bytes(Component c) const {
  std::uint64_t sum = 0;
  for_each_counted(entries, [&](const MemoryEntry& n) {
    if (n.component == c) sum = checked_add(sum, n.at_peak(), "a component's total");
  });
  return sum;
}

std::uint64_t MemoryReport::component_bytes(Tier t, Component c) const {
  std::uint64_t sum = 0;
  for_each_counted(entries, [&](const MemoryEntry& n) {
    if (n.tier == t && n.component == c) sum = checked_add(sum, n.at_peak(), "a component's total");
  });
  return sum;
}

std::uint64_t raise_to_upper_bounds(MemoryReport& r) {
  std::unordered_set<std::uint32_t> parents;
  for (const MemoryEntry& n : r.entries) parents.insert(n.parent);
  std::uint64_t added = 0;
  for (MemoryEntry& n : r.entries) {
    if (n.claim != Claim::kApproximation) continue;
    const std::uint64_t margin = n.hi - n.bytes;
    n.bytes = n.hi;
    if (n.has_at_peak) n.bytes_at_peak = checked_add(n.bytes_at_peak, margin, "an upper bound");
    if (parents.count(n.id)) continue;  // a heading repeats the bytes of its children
    added = checked_add(added, margin, "an upper bound");
    for (TierPeak& t : r.tiers)
      if (t.tier == n.tier) t.bytes = checked_add(t.bytes, margin, "an upper bound");
  }
  if (added == 0) return 0;
  for (MemoryEntry& n : r.entries)
    if (n.claim == Claim::kApproximation) n.claim = Claim::kUpperBound;
  r.claim = Claim::kUpperBound;
  return added;
}

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

}  // namespace trainhost
