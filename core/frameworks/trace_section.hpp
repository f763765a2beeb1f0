// A part of a trace that frees nothing older, to be written to other traces: the passes of a step, which are
// the same whatever the optimizer keeps. Saves the time to calculate them again.
#pragma once
#include <cstdint>
#include <optional>

#include "core/frameworks/trace.hpp"

namespace trainhost::frameworks {

class Tape;

struct TraceSection {
  Trace trace;  // with all names; storages and events count from the start of the section
  /// Bytes above those at its start, each storage in blocks of 512 bytes: the most, and what is left.
  std::uint64_t peak = 0, left = 0;
};

/// What `t` has from `begin` on; nullopt where it frees what is older.
std::optional<TraceSection> section_since(const TraceMark& begin, const Trace& t);

/// Returns the number of its first storage in the trace of the tape. Throws PeakAboveLimit as its events
/// would.
std::uint32_t append_section(Tape& tape, const TraceSection& section);

}  // namespace trainhost::frameworks
