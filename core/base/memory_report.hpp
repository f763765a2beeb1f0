// What an estimator or a trainer says about memory: leaves with tier, component, claim and phases, plus a
// summary. Plain data that crosses every layer; computed by plugins, judged and printed by the host.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost {

/// The phases of what stands for all of a run.
inline constexpr std::uint32_t kAlways = kLoad | kForward | kBackward | kUpdate | kEval | kSave | kGenerate;

struct MemoryEntry {
  std::uint32_t id = 0, parent = 0;  // ids count from 1, a parent comes before its children, 0 = root
  Tier tier = Tier::kHost;
  Component component = Component::kWorkspace;
  Claim claim = Claim::kExact;
  std::uint32_t phases = 0;         // mask of Phase
  std::uint64_t bytes = 0;          // the most it ever takes
  std::uint64_t lo = 0, hi = 0;     // kExact: lo == bytes == hi
  std::uint64_t bytes_at_peak = 0;  // its share of the tier's peak: a tier's leaves sum to its total
  bool has_at_peak = false;         // false: only `bytes` and `phases` are known
  std::string name, formula;        // "layers[].qkv", "B*S*(A+2K)*D*4 = 4*128*(3+2*3)*32*4"

  /// Its bytes in its tier's total: what it has at the worst moment, or the most it takes where that is not
  /// known.
  std::uint64_t at_peak() const { return has_at_peak ? bytes_at_peak : bytes; }
};

struct TierPeak {
  Tier tier = Tier::kHost;
  std::uint64_t bytes = 0;   // everything the plugin takes in this tier, at the worst moment
  Phase peak_at = kForward;  // when that moment is; kAlways where nothing comes or goes
};

struct MemoryReport {
  std::string source;  // plugin id
  Claim claim = Claim::kExact;
  std::vector<MemoryEntry> entries;
  std::vector<TierPeak> tiers;     // empty: the host computes them from entries and phases
  std::uint64_t digest = 0;        // of the plan, 0 = none
  std::vector<std::string> notes;  // sentences for the user

  std::uint64_t total_bytes() const;
  std::uint64_t tier_bytes(Tier t) const;
  /// Sum of bytes_at_peak (or bytes) over leaves of that component, all tiers or one.
  std::uint64_t component_bytes(Component c) const;
  std::uint64_t component_bytes(Tier t, Component c) const;
};

}  // namespace trainhost
