// A th_host that judges whoever calls it: every callback is held against the rules of status.h and host.h,
// memory goes through the same ledger as in training. It answers like the real host, so that a good plugin
// cannot tell.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "core/plugin/ledger.hpp"
#include "core/plugin_validator/record.hpp"
#include "trainhost/host.h"

namespace trainhost::plugin_validator {

class CheckingHost {
 public:
  explicit CheckingHost(Record& record);
  CheckingHost(const CheckingHost&) = delete;

  const th_host* get() const { return &table_; }
  plugin::Ledger& ledger() { return ledger_; }

  /// While one of these lives, callbacks are legal. One for each call into the plugin, one for each instance.
  class Legal {
   public:
    explicit Legal(CheckingHost& h) : host_(h) { ++host_.legal_; }
    ~Legal() { --host_.legal_; }
    Legal(const Legal&) = delete;

   private:
    CheckingHost& host_;
  };

  void set_option(const std::string& key, const std::string& value) { options_[key] = value; }
  void clear_options() { options_.clear(); }
  void cancel_from_now_on(bool on) { cancel_ = on, polls_left_ = -1; }
  /// cancelled() says no `times` more times, and then yes until cancel_from_now_on(false).
  void cancel_after(int times) { polls_left_ = times; }
  /// alloc() number `n` from now on (from 1) gives nothing, once. 0: all are given.
  void fail_alloc(int n) { allocs_ = 0, failing_alloc_ = n; }
  /// alloc() calls since fail_alloc().
  int allocs() const { return allocs_; }
  void set_threads(std::uint32_t n) { table_.thread_budget = n; }
  int asked_cancelled() const { return asked_cancelled_; }
  /// Breach when the plugin wrote into the table itself.
  void look_at_table();

 private:
  friend struct CheckingCallbacks;
  void called(const char* what);
  Record& record_;
  plugin::Ledger ledger_;
  std::mutex mutex_;
  std::set<void*> given_;
  std::map<std::string, std::string> options_;
  std::atomic<int> legal_{0}, asked_cancelled_{0}, allocs_{0}, failing_alloc_{0};
  std::atomic<int> polls_left_{-1};  // -1: only cancel_ counts
  std::atomic<bool> cancel_{false};
  th_host table_{};
};

}  // namespace trainhost::plugin_validator
