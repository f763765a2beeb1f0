// Verdicts, labels of totals, and text about memory whose limit is not known, shared by tables and pages.
#pragma once
#include <fmt/format.h>

#include <string>

#include "core/base/text.hpp"
#include "core/planning/plan_result.hpp"

namespace trainhost::report {

/// "pinned host memory"; the others as name().
inline std::string_view display_name(Tier tier) {
  return tier == Tier::kPinned ? "pinned host memory" : name(tier);
}

/// "total on device", "total on host", "total in pinned host memory".
inline std::string total_label(Tier tier) {
  return fmt::format("total {} {}", tier == Tier::kPinned ? "in" : "on", display_name(tier));
}

/// "needs 137 GiB of host memory (limit not known)"; "" where nothing is unjudged. Bytes per rank.
inline std::string unjudged_text(std::uint64_t host_bytes, std::uint64_t disk_bytes) {
  std::string out;
  if (host_bytes) out += fmt::format("needs {} of host memory", format_bytes(host_bytes));
  if (disk_bytes)
    out += fmt::format("{} {} of disk space", out.empty() ? "needs" : " and", format_bytes(disk_bytes));
  return out.empty() ? out : out + " (limit not known)";
}

/// "; needs 137 GiB of host memory (limit not known)", to follow another statement; "" where nothing is
/// unjudged.
inline std::string and_unjudged(std::uint64_t host_bytes) {
  return host_bytes ? "; " + unjudged_text(host_bytes, 0) : "";
}

/// "fits in 79.1 GiB", "does not fit in 79.1 GiB", "budget not known".
inline std::string verdict_text(planning::Verdict verdict, std::uint64_t compute_bytes,
                                std::uint64_t budget) {
  if (verdict == planning::Verdict::kNotKnown) return "budget not known";
  if (verdict != planning::Verdict::kDoesNotFit)
    return fmt::format("fits in {}{}", format_bytes(budget),
                       verdict == planning::Verdict::kFitsDevice ? ", host memory not known" : "");
  return compute_bytes > budget ? fmt::format("does not fit in {}", format_bytes(budget))
                                : "does not fit in host memory";
}

/// The option that makes unjudged host memory known. Disk space has none.
inline constexpr const char* kHostBudgetHint = "set --host-budget=SIZE to see whether it fits";

}  // namespace trainhost::report
