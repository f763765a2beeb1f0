// See trace_section.hpp.
#include "core/frameworks/trace_section.hpp"

#include <algorithm>
#include <vector>

#include "core/frameworks/evaluate.hpp"
#include "core/frameworks/tape.hpp"

namespace trainhost::frameworks {

std::optional<TraceSection> section_since(const TraceMark& begin, const Trace& t) {
  TraceSection s;
  s.trace.names = t.names;
  s.trace.storages.assign(t.storages.begin() + static_cast<std::ptrdiff_t>(begin.storages), t.storages.end());
  s.trace.phases.assign(t.phases.begin() + static_cast<std::ptrdiff_t>(begin.phases), t.phases.end());
  for (TracePhase& p : s.trace.phases) p.event -= begin.events;
  s.trace.events.reserve(t.events.size() - begin.events);
  for (std::size_t i = begin.events; i < t.events.size(); ++i) {
    const TraceEvent e = t.events[i];
    if (e.storage < begin.storages) return std::nullopt;
    s.trace.events.push_back({static_cast<std::uint32_t>(e.storage - begin.storages), e.allocation});
    const std::uint64_t size = rounded_up(t.storages[e.storage].bytes, EvaluateOptions().block);
    s.left = e.allocation ? s.left + size : s.left - size;
    s.peak = std::max(s.peak, s.left);
  }
  return s;
}

std::uint32_t append_section(Tape& tape, const TraceSection& section) {
  tape.require_within_limit(section.peak);
  Trace& t = tape.writer().trace();
  // Another trace may have met other names before.
  std::vector<std::uint32_t> name_of;
  for (const std::string& name : section.trace.names) {
    name_of.push_back(static_cast<std::uint32_t>(std::ranges::find(t.names, name) - t.names.begin()));
    if (name_of.back() == t.names.size()) t.names.push_back(name);
  }
  for (TracePhase p : section.trace.phases) {
    p.event += t.events.size();
    t.phases.push_back(p);
  }
  const auto first = static_cast<std::uint32_t>(t.storages.size());
  for (TraceStorage s : section.trace.storages) {
    s.module = name_of[s.module], s.tensor = name_of[s.tensor];
    t.storages.push_back(s);
  }
  for (const TraceEvent e : section.trace.events) t.events.push_back({e.storage + first, e.allocation});
  tape.writer().add_bytes(section.left);
  return first;
}

}  // namespace trainhost::frameworks
