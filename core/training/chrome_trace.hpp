// A Chrome trace (trace event format, JSON) as text, made piece by piece so that no trace is ever held in
// memory. One process, one track of nested slices: step, then phase of a micro-batch, then operation; and
// counters of memory. Times are microseconds since the first event, exact to the nanosecond.
#pragma once
#include <cstdint>
#include <string>

#include "core/plugin/profiler.hpp"

namespace trainhost::training {

class ChromeTrace {
 public:
  /// `process`: what Perfetto shows as the process; `track`: as its thread.
  ChromeTrace(const std::string& process, const std::string& track);

  /// A step and everything in it, in this order: begin_step, op..., end_step; memory() at any time in
  /// between.
  void begin_step(std::uint64_t number, std::uint64_t start_ns, std::uint64_t end_ns);
  void op(const plugin::OpTiming& t);
  void end_step() { flush_phase(); }
  /// What the ledger counted and what was resident at that moment.
  void memory(std::uint64_t at_ns, std::uint64_t held_bytes, std::uint64_t resident_bytes);
  void finish();

  std::uint64_t ops() const { return ops_; }
  /// The text since the last call.
  std::string take();

 private:
  void flush_phase();
  void slice(std::string& to, const std::string& quoted_name, const char* category, std::uint64_t start_ns,
             std::uint64_t end_ns, const std::string& args);
  void counter(std::string& to, const char* name, std::uint64_t at_ns, const std::string& args);
  std::string us(std::uint64_t at_ns) const;

  std::string text_, phase_ops_;  // phase_ops_: of the phase that is not closed yet
  std::uint64_t ops_ = 0, origin_ns_ = 0;
  bool has_origin_ = false;
  Phase phase_ = kForward;
  std::uint32_t micro_ = 0;
  std::uint64_t phase_start_ns_ = 0, phase_end_ns_ = 0, live_bytes_ = UINT64_MAX;
};

}  // namespace trainhost::training
