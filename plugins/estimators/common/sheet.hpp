// What every rule-of-thumb estimator does alike: leaves on the device with their formula, notes, the total of
// it all. Holds no equation of its own and never reads an option; the plugin says what each leaf is and how
// far it may be off.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/checked.hpp"
#include "core/base/memory_report.hpp"

namespace trainhost::rules {

/// Collects leaves that are alive at the peak, each an approximation that is certain of itself until told
/// otherwise.
class Sheet {
 public:
  /// `bytes` with its formula, numbers filled in. The reference is good until the next leaf; its lo and hi
  /// may be widened.
  MemoryEntry& leaf(Component c, const char* name, std::uint32_t phases, std::uint64_t bytes,
                    std::string formula) {
    MemoryEntry n;
    n.id = static_cast<std::uint32_t>(report_.entries.size() + 1);
    n.tier = Tier::kDevice;
    n.component = c;
    n.claim = Claim::kApproximation;
    n.phases = phases;
    n.bytes = n.lo = n.hi = n.bytes_at_peak = bytes;
    n.has_at_peak = true;
    n.name = name;
    n.formula = std::move(formula);
    report_.entries.push_back(std::move(n));
    return report_.entries.back();
  }

  void note(std::string sentence) { report_.notes.push_back(std::move(sentence)); }

  /// The report of the device, whose peak is in `at`. The sheet is empty after it.
  MemoryReport finish(Phase at) {
    report_.claim = Claim::kApproximation;
    std::uint64_t total = 0;
    for (const MemoryEntry& n : report_.entries)
      total = checked_add(total, n.bytes_at_peak, "an estimate's total");
    report_.tiers.push_back({Tier::kDevice, total, at});
    return std::exchange(report_, {});
  }

 private:
  MemoryReport report_;
};

}  // namespace trainhost::rules
