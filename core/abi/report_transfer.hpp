// Memory reports across the boundary: emit() sends one into a plugin-side sink, Collector is the sink that
// turns what arrives back into a MemoryReport. The collector trusts nothing: every node is checked before it
// is kept.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/abi/zeroed_struct.hpp"
#include "core/base/memory_report.hpp"
#include "trainhost/memory.h"

namespace trainhost::abi {

/// Sends nodes, notes and summary of `report`, in that order; ids are kept. Returns the first status that the
/// sink refuses with, else TH_OK. `summary` may be null and may be of an older, shorter layout.
th_status emit(const MemoryReport& report, th_mem_sink* sink, th_mem_summary* summary);

/// Receives one report. Use: pass sink() and summary() into the call, then take() when it returned TH_OK.
/// A node that breaks the rules of memory.h is refused with TH_E_ARG and remembered in problem(); nothing
/// throws.
class Collector {
 public:
  Collector();
  Collector(const Collector&) = delete;

  th_mem_sink* sink() { return sink_.get(); }
  th_mem_summary* summary() { return summary_.get(); }
  Room<th_mem_sink>& sink_room() { return sink_; }
  Room<th_mem_summary>& summary_room() { return summary_; }

  /// What the other side did wrong, in one sentence; "" while all is well.
  const std::string& problem() const { return problem_; }

  /// The report, with the peak of each tier filled in: as stated, or else computed from leaves and phases,
  /// and then the claim is at most upper_bound, unless all leaves are always there. Leaves that carry their
  /// share of the peak must sum to the stated total. Closes the sink: calls that come later are refused.
  /// Empty nodes and tiers when problem() is set.
  MemoryReport take(std::string source);

 private:
  static th_status on_node(th_mem_sink* sink, const th_mem* node);
  static th_status on_note(th_mem_sink* sink, const char* sentence);
  th_status refuse(const std::string& why);
  th_status add(const th_mem& node);
  void fill_tier(Tier t);

  Room<th_mem_sink> sink_;
  Room<th_mem_summary> summary_;
  MemoryReport report_;
  std::string problem_;
  std::size_t text_bytes_ = 0;  // of all names and formulas
  bool open_ = true;
};

}  // namespace trainhost::abi
