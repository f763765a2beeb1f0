// Sinks for reports and tensors of a plugin: they copy what they receive, and record calls that come too
// late or from another thread. Other files judge the content. A sink exists as long as its WatchedPlugin, so
// a late call does not write to freed memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/plugin_validator/breach_record.hpp"
#include "trainhost/memory.h"
#include "trainhost/trainer.h"

namespace trainhost::plugin_validator {

/// One node as received. name and formula are nullopt if they were null.
struct ReceivedNode {
  th_mem mem{};
  std::optional<std::string> name, formula;
};

struct ReceivedReport {
  std::vector<ReceivedNode> nodes;
  std::vector<std::optional<std::string>> notes;
  bool too_many = false;  // more than kMostNodes; further nodes were rejected
  th_mem_summary summary{};
};

inline constexpr std::size_t kMostNodes = 100'000;

class ReportSink {
 public:
  ReportSink(BreachRecord& record, std::thread::id caller);
  th_mem_sink* get() { return &sink_; }
  ReceivedReport& report() { return report_; }
  /// Every later call is recorded as a breach.
  void close() { open_ = false; }
  /// The node with this number (from 1) and all after it fail with `code`; 0: none.
  void fail_from(std::size_t number, th_status code) { fail_from_ = number, fail_code_ = code; }
  int calls_after_failure() const { return calls_after_failure_; }
  /// Called after each of the first nodes, on the plugin's thread; must not throw.
  void call_meanwhile(std::function<void()> f) { meanwhile_ = std::move(f); }

 private:
  static constexpr std::size_t kMeanwhileNodes = 4;
  static th_status on_node(th_mem_sink*, const th_mem*) noexcept;
  static th_status on_note(th_mem_sink*, const char*) noexcept;
  bool judge(const char* what);  // false: too late, do not store it
  BreachRecord& record_;
  std::thread::id caller_;
  std::mutex mutex_;
  std::atomic<bool> open_{true};
  ReceivedReport report_;
  std::size_t fail_from_ = 0;
  th_status fail_code_ = TH_OK;
  int calls_after_failure_ = 0;
  std::function<void()> meanwhile_;
  th_mem_sink sink_{};
};

/// One piece of a tensor as received, with a copy of its elements.
struct ReceivedPiece {
  th_tensor head{};
  std::optional<std::string> name;
  std::vector<unsigned char> bytes;
};

class TensorSink {
 public:
  TensorSink(BreachRecord& record, std::thread::id caller);
  th_tensor_sink* get() { return &sink_; }
  std::vector<ReceivedPiece>& pieces() { return pieces_; }
  void close() { open_ = false; }
  void fail_from(std::size_t number, th_status code) { fail_from_ = number, fail_code_ = code; }
  int calls_after_failure() const { return calls_after_failure_; }

 private:
  static th_status on_tensor(th_tensor_sink*, const th_tensor*) noexcept;
  BreachRecord& record_;
  std::thread::id caller_;
  std::atomic<bool> open_{true};
  std::vector<ReceivedPiece> pieces_;
  std::size_t fail_from_ = 0, count_ = 0;
  th_status fail_code_ = TH_OK;
  int calls_after_failure_ = 0;
  th_tensor_sink sink_{};
};

/// Bytes of one element; 0 for other types.
std::size_t element_bytes(std::uint32_t dtype);

/// The text at s, cut at 64 KiB; nullopt for null.
std::optional<std::string> copied(const char* s);

/// A report as text; equal exactly if the reports are equal.
std::string report_text(const ReceivedReport& r);

/// The entries of a report: its nodes without children.
std::vector<th_mem> entries_of(const ReceivedReport& r);

/// Bytes of all entries, in double so that the sum cannot overflow.
double sum_of_entries(const ReceivedReport& r);

}  // namespace trainhost::plugin_validator
