// Whether two training steps have the same events, names and phases.
#pragma once
#include <tuple>

#include "core/frameworks/training_step.hpp"

namespace trainhost::test {

inline bool same_steps(const frameworks::TrainingStep& a, const frameworks::TrainingStep& b) {
  const frameworks::Trace &t = a.trace, &u = b.trace;
  const auto storage = [](const frameworks::Trace& of, frameworks::TraceEvent e) {
    const frameworks::TraceStorage& s = of.storages[e.storage];
    return std::tuple(bool{e.allocation}, s.bytes, of.name_of(s), s.purpose, s.stream);
  };
  const auto phase = [](const frameworks::TracePhase& p) {
    return std::tuple(p.event, p.phase, p.step, p.micro_batch);
  };
  bool same = t.events.size() == u.events.size() && t.phases.size() == u.phases.size() &&
              a.saved_bytes == b.saved_bytes && a.host.buffers().size() == b.host.buffers().size();
  for (std::size_t i = 0; same && i < t.events.size(); ++i)
    same = storage(t, t.events[i]) == storage(u, u.events[i]);
  for (std::size_t i = 0; same && i < t.phases.size(); ++i) same = phase(t.phases[i]) == phase(u.phases[i]);
  for (std::size_t i = 0; same && i < a.host.buffers().size(); ++i)
    same = a.host.buffers()[i].bytes == b.host.buffers()[i].bytes;
  return same;
}

}  // namespace trainhost::test
