// See evaluate.hpp. One pass finds the peak; another one, up to its event, the storages that it consists of.
#include "core/frameworks/evaluate.hpp"

#include <algorithm>

namespace trainhost::frameworks {
namespace {

std::vector<std::uint32_t> live_at(const Trace& trace, std::uint64_t event) {
  std::vector<bool> live(trace.storages.size());
  for (std::uint64_t i = 0; i <= event; ++i) live[trace.events[i].storage] = trace.events[i].allocation;
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < live.size(); ++i)
    if (live[i]) out.push_back(i);
  return out;
}

}  // namespace

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t block) {
  // Not std::has_single_bit(), which calls a function where the target may lack an instruction for it.
  if ((block & (block - 1)) == 0) return (bytes + block - 1) & ~(block - 1);
  return (bytes + block - 1) / block * block;
}

Peak find_peak(const Trace& trace, const EvaluateOptions& options) {
  Peak peak;
  std::uint64_t now = 0;
  std::array<std::uint64_t, kPurposes> each{};
  for (std::uint64_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent e = trace.events[i];
    const TraceStorage& s = trace.storages[e.storage];
    const std::uint64_t bytes = rounded_up(s.bytes, options.block);
    const auto purpose = static_cast<std::size_t>(s.purpose);
    if (!e.allocation) {
      now -= bytes;
      each[purpose] -= bytes;
      continue;
    }
    now += bytes;
    each[purpose] += bytes;
    peak.largest_by_purpose[purpose] = std::max(peak.largest_by_purpose[purpose], each[purpose]);
    if (now > peak.bytes) {
      peak.bytes = now;
      peak.event = i;
    }
  }
  if (trace.events.empty()) return peak;
  for (const TracePhase& p : trace.phases)
    if (p.event <= peak.event) peak.phase = p;
  peak.largest = live_at(trace, peak.event);
  for (const std::uint32_t i : peak.largest) {
    const TraceStorage& s = trace.storages[i];
    peak.by_purpose[static_cast<std::size_t>(s.purpose)] += rounded_up(s.bytes, options.block);
  }
  const std::size_t count = std::min(options.largest, peak.largest.size());
  std::partial_sort(peak.largest.begin(), peak.largest.begin() + static_cast<std::ptrdiff_t>(count),
                    peak.largest.end(), [&](std::uint32_t a, std::uint32_t b) {
                      const std::uint64_t x = trace.storages[a].bytes, y = trace.storages[b].bytes;
                      return x != y ? x > y : a < b;
                    });
  peak.largest.resize(count);
  return peak;
}

std::vector<std::uint64_t> peaks_of_phases(const Trace& trace, std::uint64_t block) {
  std::vector<std::uint64_t> peaks(trace.phases.size());
  std::uint64_t now = 0, event = 0;
  for (std::size_t p = 0; p < trace.phases.size(); ++p) {
    peaks[p] = now;
    const std::uint64_t end = p + 1 < trace.phases.size() ? trace.phases[p + 1].event : trace.events.size();
    for (; event < end; ++event) {
      const TraceEvent e = trace.events[event];
      const std::uint64_t bytes = rounded_up(trace.storages[e.storage].bytes, block);
      now = e.allocation ? now + bytes : now - bytes;
      peaks[p] = std::max(peaks[p], now);
    }
  }
  return peaks;
}

std::string time_of(const Trace& trace, const Peak& peak) {
  std::string text = peak.phase.phase == kForward    ? "forward pass"
                     : peak.phase.phase == kBackward ? "backward pass"
                     : peak.phase.phase == kUpdate   ? "optimizer step"
                                                     : "loading";
  if (peak.phase.micro_batch) text += " of micro-batch " + std::to_string(peak.phase.micro_batch);
  if (peak.phase.step) text += " in step " + std::to_string(peak.phase.step);
  if (peak.event < trace.events.size())
    text += ", when " + trace.name_of(trace.storages[trace.events[peak.event].storage]) + " is allocated";
  return text;
}

}  // namespace trainhost::frameworks
