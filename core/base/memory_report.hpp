// MemoryReport: the memory breakdown of an estimator or a trainer, as entries with tier, component, claim and
// phases, and a summary. Plain data; plugins compute it, the host checks and prints it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost {

/// All phases: the entry is live during the whole run.
inline constexpr std::uint32_t kAlways = kLoad | kForward | kBackward | kUpdate | kEval | kSave | kGenerate;

/// In the order of tables.
inline constexpr Tier kAllTiers[] = {Tier::kDevice, Tier::kPinned, Tier::kHost, Tier::kDisk};

/// One line of a memory breakdown. An entry that is the parent of others is a heading and is not part of any
/// sum.
struct MemoryEntry {
  std::uint32_t id = 0, parent = 0;  // ids count from 1; a parent precedes its children; 0 = root
  Tier tier = Tier::kHost;
  Component component = Component::kWorkspace;
  Claim claim = Claim::kExact;
  std::uint32_t phases = 0;         // mask of Phase
  std::uint64_t bytes = 0;          // maximum over the step
  std::uint64_t lo = 0, hi = 0;     // kExact: lo == bytes == hi
  std::uint64_t bytes_at_peak = 0;  // at the peak of the tier; these sum to the tier's total
  bool has_at_peak = false;         // false: bytes_at_peak is unknown
  std::string name, formula;        // "layers[].qkv", "B*S*(A+2K)*D*4 = 4*128*(3+2*3)*32*4"

  /// Bytes at the peak of its tier; the maximum if that is unknown.
  std::uint64_t at_peak() const { return has_at_peak ? bytes_at_peak : bytes; }
};

struct TierPeak {
  Tier tier = Tier::kHost;
  std::uint64_t bytes = 0;   // all memory of the plugin in this tier at the peak
  Phase peak_at = kForward;  // phase of the peak; kAlways if nothing is freed
};

struct MemoryReport {
  std::string source;  // plugin id
  Claim claim = Claim::kExact;
  std::vector<MemoryEntry> entries;
  std::vector<TierPeak> tiers;     // empty: computed from entries and phases
  std::uint64_t digest = 0;        // of the plan, 0 = none
  std::vector<std::string> notes;  // sentences for the user

  std::uint64_t total_bytes() const;
  std::uint64_t tier_bytes(Tier t) const;
  /// Sum of at_peak() over the entries of a component, in all tiers or in one.
  std::uint64_t component_bytes(Component c) const;
  std::uint64_t component_bytes(Tier t, Component c) const;
};

/// Replaces the bytes of each approximation by its upper bound (hi), also in the peaks of the tiers, and
/// claims upper bounds. Returns the sum of what was added, in bytes.
std::uint64_t raise_to_upper_bounds(MemoryReport& r);

struct ComponentBytes {
  std::uint64_t bytes = 0;      // at the peak of the tier
  Claim claim = Claim::kExact;  // of the least certain entry
};
std::map<Component, ComponentBytes> component_bytes_of(const MemoryReport& r, Tier tier);

/// Entries by bytes at the peak, then by maximum bytes, largest first. Ties keep their order.
std::vector<const MemoryEntry*> largest_first(const MemoryReport& r);

}  // namespace trainhost
