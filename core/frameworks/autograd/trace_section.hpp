// A part of a trace that frees nothing older, or only what the part before it has left, to be written to
// other traces: the passes of a step, which are the same whatever the optimizer keeps. Saves the time to
// calculate them again.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

class Tape;

struct TraceSection {
  Trace trace;  // with all names; storages and events count from the start of the section
  /// Storages of the section before that this one frees, counted from the start of that one. Events number
  /// them after the section's own.
  std::vector<std::uint32_t> older;
  /// Bytes above those at its start, each storage in blocks of 512 bytes: the most, and what is left, which
  /// is negative where more is freed than allocated.
  std::int64_t peak = 0, left = 0;
};

/// What `t` has from `begin` on; nullopt where it frees what is older.
std::optional<TraceSection> section_since(const TraceMark& begin, const Trace& t);
/// The part of `t` up to `end`. before: where another section begins, which ends at `begin`.
std::optional<TraceSection> section_of(const Trace& t, const TraceMark& before, const TraceMark& begin,
                                       const TraceMark& end);

/// Returns the number of its first storage in the trace of the tape. before: that of the section before.
/// Throws PeakAboveLimit as its events would.
std::uint32_t append_section(Tape& tape, const TraceSection& section, std::uint32_t before = 0);

}  // namespace trainhost::frameworks
