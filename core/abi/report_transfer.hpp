// Memory reports across the plugin boundary: send_report() sends a report to a sink; Collector is the sink
// that turns received nodes back into a MemoryReport. The collector does not trust the sender: it checks
// every node before it stores it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/abi/zero_padded.hpp"
#include "core/base/memory_report.hpp"
#include "trainhost/memory.h"

namespace trainhost::abi {

/// Sends nodes, notes and summary of `report`, in that order; ids are kept. Throws StatusError with the first
/// status other than TH_OK that the sink returns. `summary` may be null and may be of an older, shorter
/// layout.
void send_report(const MemoryReport& report, th_mem_sink* sink, th_mem_summary* summary);

/// Receives one report. Use: pass sink() and summary() into the call, then take() when it returned TH_OK.
/// A node that violates the rules of memory.h is rejected with TH_E_ARG and stored in problem(). Nothing
/// throws.
class Collector {
 public:
  Collector();
  Collector(const Collector&) = delete;

  th_mem_sink* sink() { return sink_.get(); }
  th_mem_summary* summary() { return summary_.get(); }
  ZeroPadded<th_mem_sink>& padded_sink() { return sink_; }
  ZeroPadded<th_mem_summary>& padded_summary() { return summary_; }

  /// The first violation as a sentence; "" if there is none.
  const std::string& problem() const { return problem_; }
  /// Whether the host had no memory for a node or a note, which the report therefore lacks.
  bool out_of_memory() const { return out_of_memory_; }

  /// The report, with the peak of each tier: as stated in the summary, else computed from entries and
  /// phases. A computed peak is an upper bound unless all entries are live in every phase. If all entries
  /// of a tier have bytes_at_peak, they must sum to the stated peak. Closes the sink: later calls are
  /// rejected. Entries and tiers are empty if problem() is set.
  MemoryReport take(std::string source);

 private:
  static th_status on_node(th_mem_sink* sink, const th_mem* node);
  static th_status on_note(th_mem_sink* sink, const char* sentence);
  th_status reject(const std::string& why);
  th_status add(const th_mem& node);
  void fill_tier(Tier t);

  ZeroPadded<th_mem_sink> sink_;
  ZeroPadded<th_mem_summary> summary_;
  MemoryReport report_;
  std::string problem_;
  bool out_of_memory_ = false;
  std::size_t text_bytes_ = 0;  // of all names and formulas
  bool open_ = true;
};

}  // namespace trainhost::abi
