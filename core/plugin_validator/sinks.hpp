// Sinks for reports and tensors of a plugin: they copy what they receive, and record calls that come too
// late or from another thread. Other files judge the content. A sink exists as long as its WatchedPlugin, so
// a late call does not write to freed memory.
#pragma once
#include <atomic>
#include <cstdint>
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
struct SeenNode {
  th_mem mem{};
  std::optional<std::string> name, formula;
};

struct SeenReport {
  std::vector<SeenNode> nodes;
  std::vector<std::optional<std::string>> notes;
  bool too_many = false;  // more than kMostNodes; further nodes were refused
  th_mem_summary summary{};
};

inline constexpr std::size_t kMostNodes = 100'000;

class ReportSink {
 public:
  ReportSink(BreachRecord& record, std::thread::id caller);
  th_mem_sink* get() { return &sink_; }
  SeenReport& report() { return report_; }
  /// Every later call is recorded as a breach.
  void close() { open_ = false; }
  /// The node with this number (from 1) and all after it are refused with `code`.
  void refuse_from(std::size_t number, th_status code) { refuse_from_ = number, refuse_code_ = code; }
  int calls_after_refusal() const { return after_refusal_; }

 private:
  static th_status on_node(th_mem_sink*, const th_mem*) noexcept;
  static th_status on_note(th_mem_sink*, const char*) noexcept;
  bool judge(const char* what);  // false: too late, do not store it
  BreachRecord& record_;
  std::thread::id caller_;
  std::mutex mutex_;
  std::atomic<bool> open_{true};
  SeenReport report_;
  std::size_t refuse_from_ = 0;
  th_status refuse_code_ = TH_OK;
  int after_refusal_ = 0;
  th_mem_sink sink_{};
};

/// One piece of a tensor as received, with a copy of its elements.
struct SeenPiece {
  th_tensor head{};
  std::optional<std::string> name;
  std::vector<unsigned char> bytes;
};

class TensorSink {
 public:
  TensorSink(BreachRecord& record, std::thread::id caller);
  th_tensor_sink* get() { return &sink_; }
  std::vector<SeenPiece>& pieces() { return pieces_; }
  void close() { open_ = false; }
  void refuse_from(std::size_t number, th_status code) { refuse_from_ = number, refuse_code_ = code; }
  int calls_after_refusal() const { return after_refusal_; }

 private:
  static th_status on_tensor(th_tensor_sink*, const th_tensor*) noexcept;
  BreachRecord& record_;
  std::thread::id caller_;
  std::atomic<bool> open_{true};
  std::vector<SeenPiece> pieces_;
  std::size_t refuse_from_ = 0, count_ = 0;
  th_status refuse_code_ = TH_OK;
  int after_refusal_ = 0;
  th_tensor_sink sink_{};
};

/// Bytes of one element; 0 for other types.
std::size_t element_bytes(std::uint32_t dtype);

/// The text at s, cut at 64 KiB; nullopt for null.
std::optional<std::string> copied(const char* s);

/// A report as text; equal exactly if the reports are equal.
std::string report_text(const SeenReport& r);

/// Bytes of all entries (nodes without children), in double so that it cannot overflow.
double sum_of_entries(const SeenReport& r);

}  // namespace trainhost::plugin_validator
