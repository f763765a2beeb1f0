// Sums and orders the entries of a memory report for tables and charts. Bytes are those at the peak of a
// tier.
#pragma once
#include <map>
#include <vector>

#include "core/base/memory_report.hpp"

namespace trainhost::report {

inline constexpr Tier kAllTiers[] = {Tier::kDevice, Tier::kPinned, Tier::kHost, Tier::kDisk};

struct ComponentBytes {
  std::uint64_t bytes = 0;
  Claim claim = Claim::kExact;  // of the least certain entry
};
std::map<Component, ComponentBytes> component_bytes_of(const MemoryReport& r, Tier tier);

/// Entries by bytes at the peak, then by maximum bytes, largest first. Ties keep their order.
std::vector<const MemoryEntry*> largest_first(const MemoryReport& r);

}  // namespace trainhost::report
