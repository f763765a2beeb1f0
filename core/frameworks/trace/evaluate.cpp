// See evaluate.hpp. One pass finds the peak; another one, up to its event, the storages that it consists of.
#include "core/frameworks/trace/evaluate.hpp"

#include <algorithm>
#include <utility>

namespace trainhost::frameworks {
namespace {

/// Storages that exist after the event. copied: of the second step.
std::vector<std::uint32_t> live_at(const Trace& trace, std::uint64_t event, const CopiedStep* copied) {
  std::vector<bool> live(trace.storages.size());
  const auto run = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) live[trace.events[i].storage] = trace.events[i].allocation;
  };
  run(0, copied ? trace.events.size() : event + 1);
  // What the step keeps exists already.
  if (copied)
    for (std::uint64_t i = copied->from.events; i <= event; ++i)
      if (!copied->keeps(trace.events[i].storage)) run(i, i + 1);
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

Peak find_peak(const Trace& trace, const EvaluateOptions& options, const CopiedStep* copied) {
  Peak peak;
  std::uint64_t now = 0;
  std::array<std::uint64_t, kPurposes> each{};
  bool in_second = false;
  const auto add = [&](std::uint64_t i, bool second) {
    const TraceEvent e = trace.events[i];
    const TraceStorage& s = trace.storages[e.storage];
    const std::uint64_t bytes = rounded_up(s.bytes, options.block);
    const auto purpose = static_cast<std::size_t>(s.purpose);
    if (!e.allocation) {
      now -= bytes;
      each[purpose] -= bytes;
      return;
    }
    now += bytes;
    each[purpose] += bytes;
    peak.largest_by_purpose[purpose] = std::max(peak.largest_by_purpose[purpose], each[purpose]);
    if (now > peak.bytes) {
      peak.bytes = now;
      peak.event = i;
      in_second = second;
    }
  };
  for (std::uint64_t i = 0; i < trace.events.size(); ++i) add(i, false);
  if (copied)
    for (std::uint64_t i = copied->from.events; i < trace.events.size(); ++i)
      if (!copied->keeps(trace.events[i].storage)) add(i, true);
  if (trace.events.empty()) return peak;
  for (const TracePhase& p : trace.phases)
    if (p.event <= peak.event) peak.phase = p;
  if (in_second) peak.phase.step = 2;
  peak.largest = live_at(trace, peak.event, in_second ? copied : nullptr);
  for (const std::uint32_t i : peak.largest) {
    const TraceStorage& s = trace.storages[i];
    peak.by_purpose[static_cast<std::size_t>(s.purpose)] += rounded_up(s.bytes, options.block);
  }
  // In the order of allocation: what the second step allocates comes last.
  const auto order = [&](std::uint32_t i) { return std::pair(in_second && !copied->keeps(i), i); };
  const std::size_t count = std::min(options.largest, peak.largest.size());
  std::partial_sort(peak.largest.begin(), peak.largest.begin() + static_cast<std::ptrdiff_t>(count),
                    peak.largest.end(), [&](std::uint32_t a, std::uint32_t b) {
                      const std::uint64_t x = trace.storages[a].bytes, y = trace.storages[b].bytes;
                      return x != y ? x > y : order(a) < order(b);
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
