// A th_host that checks its caller: every callback is compared with the rules of status.h and host.h, and
// memory is counted by the same ledger as in training. It answers like the real host, so a correct plugin
// behaves the same.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "core/plugin/ledger.hpp"
#include "core/plugin_validator/breach_record.hpp"
#include "trainhost/host.h"

namespace trainhost::plugin_validator {

class CheckingHost {
 public:
  explicit CheckingHost(BreachRecord& record);
  CheckingHost(const CheckingHost&) = delete;

  const th_host* get() const { return &table_; }
  plugin::Ledger& ledger() { return ledger_; }

  /// Callbacks are allowed while at least one object of this type exists: one for each call into the
  /// plugin, one for each instance.
  class CallbacksAllowed {
   public:
    explicit CallbacksAllowed(CheckingHost& h) : host_(h) { ++host_.callbacks_allowed_; }
    ~CallbacksAllowed() { --host_.callbacks_allowed_; }
    CallbacksAllowed(const CallbacksAllowed&) = delete;

   private:
    CheckingHost& host_;
  };

  void set_option(const std::string& key, const std::string& value) { options_[key] = value; }
  void clear_options() { options_.clear(); }
  void cancel_from_now_on(bool on) { cancel_ = on, polls_left_ = -1; }
  /// cancelled() returns 0 `times` more times, then 1 until cancel_from_now_on(false).
  void cancel_after(int times) { polls_left_ = times; }
  /// The n-th alloc() from now on (from 1) returns null, once. 0: none fails.
  void fail_alloc(int n) { allocs_ = 0, failing_alloc_ = n; }
  /// alloc() calls since fail_alloc().
  int allocs() const { return allocs_; }
  void set_threads(std::uint32_t n) { table_.thread_budget = n; }
  /// Records a breach if the plugin modified the table.
  void check_table_unchanged();

 private:
  friend struct CheckingCallbacks;
  void called(const char* what);
  BreachRecord& record_;
  plugin::Ledger ledger_;
  std::mutex mutex_;
  std::set<void*> given_;
  std::map<std::string, std::string> options_;
  std::atomic<int> callbacks_allowed_{0}, allocs_{0}, failing_alloc_{0};
  std::atomic<int> polls_left_{-1};  // -1: only cancel_ counts
  std::atomic<bool> cancel_{false};
  th_host table_{};
};

}  // namespace trainhost::plugin_validator
