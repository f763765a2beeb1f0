// The sinks that a plugin's report and tensors flow into: they copy what comes, and note when it comes too
// late or from another thread. What the copies mean is judged elsewhere (report_rules.hpp, tensors_seen.hpp).
// A sink lives as long as the Bench, so that a call long after the return lands in it and not in freed
// memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/plugin_validator/record.hpp"
#include "trainhost/memory.h"
#include "trainhost/trainer.h"

namespace trainhost::plugin_validator {

/// One node as it came. name: nullopt when it was null.
struct SeenNode {
  th_mem mem{};
  std::optional<std::string> name, formula;
};

struct SeenReport {
  std::vector<SeenNode> nodes;
  std::vector<std::optional<std::string>> notes;
  bool too_many = false;  // more than kMostNodes; the rest was refused
  th_mem_summary summary{};
};

inline constexpr std::size_t kMostNodes = 100'000;

class ReportSink {
 public:
  ReportSink(Record& record, std::thread::id caller);
  th_mem_sink* get() { return &sink_; }
  SeenReport& report() { return report_; }
  /// From now on every call is too late.
  void close() { open_ = false; }
  /// The node with this number (from 1) and all after it are refused with `code`.
  void refuse_from(std::size_t number, th_status code) { refuse_from_ = number, refuse_code_ = code; }
  int calls_after_refusal() const { return after_refusal_; }

 private:
  static th_status on_node(th_mem_sink*, const th_mem*) noexcept;
  static th_status on_note(th_mem_sink*, const char*) noexcept;
  bool judge(const char* what);  // false: too late, nothing is kept
  Record& record_;
  std::thread::id caller_;
  std::mutex mutex_;
  std::atomic<bool> open_{true};
  SeenReport report_;
  std::size_t refuse_from_ = 0;
  th_status refuse_code_ = TH_OK;
  int after_refusal_ = 0;
  th_mem_sink sink_{};
};

/// One piece of a tensor as it came, its elements copied.
struct SeenPiece {
  th_tensor head{};
  std::optional<std::string> name;
  std::vector<unsigned char> bytes;
};

class TensorSink {
 public:
  TensorSink(Record& record, std::thread::id caller);
  th_tensor_sink* get() { return &sink_; }
  std::vector<SeenPiece>& pieces() { return pieces_; }
  void close() { open_ = false; }
  void refuse_from(std::size_t number, th_status code) { refuse_from_ = number, refuse_code_ = code; }
  int calls_after_refusal() const { return after_refusal_; }

 private:
  static th_status on_tensor(th_tensor_sink*, const th_tensor*) noexcept;
  Record& record_;
  std::thread::id caller_;
  std::atomic<bool> open_{true};
  std::vector<SeenPiece> pieces_;
  std::size_t refuse_from_ = 0, count_ = 0;
  th_status refuse_code_ = TH_OK;
  int after_refusal_ = 0;
  th_tensor_sink sink_{};
};

/// Bytes of one element; 0 for a type that is no plain number.
std::size_t element_bytes(std::uint32_t dtype);

/// The text at s, cut at 64 KiB; nullopt for null.
std::optional<std::string> copied(const char* s);

}  // namespace trainhost::plugin_validator
