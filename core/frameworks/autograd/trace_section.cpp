// See trace_section.hpp.
#include "core/frameworks/autograd/trace_section.hpp"

#include <algorithm>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/trace/repeat_layers.hpp"

namespace trainhost::frameworks {

std::optional<TraceSection> section_of(const Trace& t, const TraceMark& before, const TraceMark& begin,
                                       const TraceMark& end) {
  const auto at = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
  TraceSection s;
  s.trace.names = t.names;
  s.trace.storages.assign(t.storages.begin() + at(begin.storages), t.storages.begin() + at(end.storages));
  s.trace.phases.assign(t.phases.begin() + at(begin.phases), t.phases.begin() + at(end.phases));
  for (TracePhase& p : s.trace.phases) p.event -= begin.events;
  s.trace.events.reserve(end.events - begin.events);
  for (std::size_t i = begin.events; i < end.events; ++i) {
    const TraceEvent e = t.events[i];
    if (e.storage < before.storages) return std::nullopt;
    std::size_t number = e.storage - begin.storages;
    if (e.storage < begin.storages) {
      number = s.trace.storages.size() + s.older.size();
      s.older.push_back(static_cast<std::uint32_t>(e.storage - before.storages));
    }
    s.trace.events.push_back({static_cast<std::uint32_t>(number), e.allocation});
    const auto size =
        static_cast<std::int64_t>(rounded_up(t.storages[e.storage].bytes, EvaluateOptions().block));
    s.left += e.allocation ? size : -size;
    s.peak = std::max(s.peak, s.left);
  }
  return s;
}

std::optional<TraceSection> section_since(const TraceMark& begin, const Trace& t) {
  return section_of(t, begin, begin, end_of(t));
}

std::uint32_t append_section(Tape& tape, const TraceSection& section, std::uint32_t before) {
  tape.require_within_limit(static_cast<std::uint64_t>(section.peak));
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
  const auto own = static_cast<std::uint32_t>(section.trace.storages.size());
  for (const TraceEvent e : section.trace.events)
    t.events.push_back(
        {e.storage < own ? first + e.storage : before + section.older[e.storage - own], e.allocation});
  tape.writer().add_bytes(static_cast<std::uint64_t>(section.left));
  return first;
}

}  // namespace trainhost::frameworks
