// See memory_result.hpp.
#include "core/training/memory_result.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/process/host_info.hpp"

namespace trainhost::training {

using report::Style;

MemoryResult memory_result(const report::Estimate& plan, const plugin::Ledger& ledger) {
  MemoryResult m;
  m.predicted_bytes = plan.total_bytes;
  m.measured_bytes = ledger.peak_total();
  m.process_peak_bytes = process_peak_bytes();
  for (Tier t : {Tier::kDevice, Tier::kPinned, Tier::kHost, Tier::kDisk})
    if (std::uint64_t predicted = plan.report.tier_bytes(t); predicted || ledger.peak(t))
      m.tiers.push_back({t, predicted, ledger.peak(t)});
  return m;
}

std::string memory_lines(const MemoryResult& m, const report::Terminal& t) {
  std::uint64_t off = m.predicted_bytes > m.measured_bytes ? m.predicted_bytes - m.measured_bytes
                                                           : m.measured_bytes - m.predicted_bytes;
  std::string verdict =
      off == 0 ? report::styled(t, Style::kGood, "equal")
               : report::styled(t, Style::kBad, fmt::format("{} bytes apart", format_count(off)));
  return fmt::format(
      "memory predicted {:>15} bytes\n       measured  {:>15} bytes   {}\n       process   {:>15} bytes   "
      "peak resident; {} of it is runtime (code, libraries)",
      format_count(m.predicted_bytes), format_count(m.measured_bytes), verdict,
      format_count(m.process_peak_bytes), format_bytes(m.runtime_bytes()));
}

}  // namespace trainhost::training
