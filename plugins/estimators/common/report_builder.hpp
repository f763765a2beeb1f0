// Collects the report of a rule-of-thumb estimator: entries on the device with formulas, notes, and the
// total. Has no equation of its own and reads no option; the plugin sets each entry and its bounds.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/checked.hpp"
#include "core/base/memory_report.hpp"

namespace trainhost::rules {

/// All entries are in memory at the peak and are approximations with lo == bytes == hi until the plugin
/// widens the bounds.
class ReportBuilder {
 public:
  /// formula: with its numbers, "P*2 = 7000*2". The result is valid until the next add(); the caller may
  /// widen lo and hi.
  MemoryEntry& add(Component c, const char* name, std::uint32_t phases, std::uint64_t bytes,
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

  /// Returns the report; the device peaks in phase `at`. The builder is empty afterwards.
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
