// Formats a Chrome trace (trace event format, JSON) in pieces, so that the trace is never complete in memory.
// One process with one track of nested slices (step, phase of a micro-batch, operation) and memory counters.
// Times are microseconds since the first event, with three decimals. The traces of the ranks of a run are
// joined to one, in which each rank is a process.
#pragma once
#include <cstdint>
#include <string>

#include "core/plugin/profiler.hpp"

namespace trainhost::training {

class ChromeTrace {
 public:
  /// Names that Perfetto shows for the process and for its thread.
  ChromeTrace(const std::string& process, const std::string& track);
  /// Of rank `rank` from 1 on: a part that follows the trace of rank 0.
  ChromeTrace(const std::string& process, const std::string& track, std::uint32_t rank);
  /// The time that counts as 0, by the clock of this process; without it, the begin of the first step.
  void set_origin(std::uint64_t at_ns) { origin_ns_ = at_ns, has_origin_ = true; }

  /// Order of calls for each step: begin_step, op..., end_step; memory() at any time in between.
  void begin_step(std::uint64_t number, std::uint64_t start_ns, std::uint64_t end_ns);
  void op(const plugin::OpTiming& t);
  void end_step() { flush_phase(); }
  /// Bytes in use according to the ledger and resident bytes of the process at `at_ns`.
  void memory(std::uint64_t at_ns, std::uint64_t held_bytes, std::uint64_t resident_bytes);
  /// Ends the last phase. end() follows, of rank 0 alone, after the parts of the other ranks.
  void finish() { flush_phase(); }
  void end() { text_ += "\n]}\n"; }

  std::uint64_t ops() const { return ops_; }
  /// Returns the text produced since the last call.
  std::string take();

 private:
  void flush_phase();
  void slice(std::string& to, const std::string& quoted_name, const char* category, std::uint64_t start_ns,
             std::uint64_t end_ns, const std::string& args);
  void counter(std::string& to, const char* name, std::uint64_t at_ns, const std::string& args);
  std::string us(std::uint64_t at_ns) const;
  std::string metadata(const char* what, const char* key, const std::string& value) const;

  std::uint32_t pid_;
  std::string text_, phase_ops_;  // phase_ops_: operations of the open phase
  std::uint64_t ops_ = 0, origin_ns_ = 0;
  bool has_origin_ = false;
  Phase phase_ = kForward;
  std::uint32_t micro_ = 0;
  std::uint64_t phase_start_ns_ = 0, phase_end_ns_ = 0, live_bytes_ = UINT64_MAX;
};

}  // namespace trainhost::training
