// See checking_host.hpp. Callbacks never throw into the plugin: if a breach cannot be recorded, it is lost
// and the call is still answered. Each callback first records that it was called, then judges its arguments,
// then answers as the real host would. Any thread may call: counters are atomic, the set of allocations has a
// lock.
#include "core/plugin_validator/checking_host.hpp"
#include "core/plugin/config_table.hpp"

#include <cmath>
#include <cstring>

#include "core/base/text.hpp"
#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr std::size_t kMaxHostText = 1 << 16;

/// What is wrong with a text argument of a plugin; "" if it is valid.
/// Bounded: a missing terminator must not be read past its page.
std::string text_breach(const char* call, const char* what, const char* text) {
  if (!text) return fmt::format("{} was called with a null {}", call, what);
  const std::size_t length = ::strnlen(text, kMaxHostText);
  if (length == kMaxHostText) return fmt::format("{} was called with a {} of more than 64 KiB", call, what);
  if (!valid_utf8({text, length}))
    return fmt::format("{} was called with a {} that is not UTF-8", call, what);
  return "";
}

}  // namespace

/// A friend with static functions, because a th_host holds plain function pointers; `self` leads back to the
/// object.
struct CheckingCallbacks {
  static CheckingHost& self(const th_host* h) { return *static_cast<CheckingHost*>(h->self); }

  static void judge(CheckingHost& h, const std::string& breach) {
    if (!breach.empty()) h.record_.breach(Rule::kCallbackArguments, breach);
  }

  static void log(const th_host* h, std::int32_t level, const char* where, const char* text) noexcept try {
    self(h).called("log()");
    if (level < TH_LOG_DEBUG || level > TH_LOG_ERROR)
      judge(self(h), fmt::format("log() was called with level {}; 0 to 3 exist", level));
    judge(self(h), text_breach("log()", "text", text));
    if (where) judge(self(h), text_breach("log()", "location", where));
  } catch (...) {
  }

  static void* alloc(const th_host* h, std::uint64_t bytes, std::uint64_t align, std::uint32_t tier,
                     const char* tag) noexcept try {
    self(h).called("alloc()");
    // The device is the plugin's own business; it reports such memory with took().
    if (tier != TH_TIER_HOST && tier != TH_TIER_PINNED) {
      judge(self(h),
            fmt::format("alloc() was asked for tier {}; only host and pinned memory can be allocated", tier));
      return nullptr;
    }
    if ((align & (align - 1)) != 0)
      judge(self(h),
            fmt::format("alloc() was asked for an alignment of {}, which is not a power of two", align));
    judge(self(h), text_breach("alloc()", "tag", tag));
    // Counted before the failure is decided, so that fail_alloc(n) means the n-th call. The refused calls
    // above do not count: they are breaches.
    if (++self(h).allocs_ == self(h).failing_alloc_) return nullptr;
    void* p =
        self(h).ledger_.alloc(bytes, align ? align : 1, static_cast<Tier>(tier), tag ? tag : "untagged");
    // Only addresses that were given out may be released, each once.
    std::lock_guard lock(self(h).mutex_);
    if (p) self(h).given_.insert(p);
    return p;
  } catch (...) {
    return nullptr;
  }

  static void release(const th_host* h, void* p) noexcept try {
    self(h).called("release()");
    if (!p) return;
    {
      std::lock_guard lock(self(h).mutex_);
      // The ledger ignores such a call without a message.
      if (self(h).given_.erase(p) == 0)
        return judge(
            self(h),
            "release() was called with memory that the host did not allocate or that was already released");
    }
    self(h).ledger_.release(p);
  } catch (...) {
  }

  static void took(const th_host* h, std::int64_t bytes, std::uint32_t tier, const char* tag) noexcept try {
    self(h).called("took()");
    judge(self(h), text_breach("took()", "tag", tag));
    if (tier < TH_TIER_DEVICE || tier > TH_TIER_DISK)
      return judge(self(h), fmt::format("took() was called with the unknown tier {}", tier));
    self(h).ledger_.took(bytes, static_cast<Tier>(tier), tag ? tag : "untagged");
  } catch (...) {
  }

  static std::int32_t cancelled(const th_host* h) noexcept try {
    self(h).called("cancelled()");
    // First cancel_after(): a number of answers "no" that remain, then "yes" until it is switched off.
    if (self(h).polls_left_ == 0) return 1;
    if (self(h).polls_left_ > 0) --self(h).polls_left_;
    return self(h).cancel_ ? 1 : 0;
  } catch (...) {
    return 0;
  }

  static void progress(const th_host* h, const char* stage, double fraction) noexcept try {
    self(h).called("progress()");
    judge(self(h), text_breach("progress()", "stage", stage));
    // Written positively, so that NaN is a breach.
    if (!(fraction <= 1))
      judge(self(h),
            fmt::format(
                "progress() was called with the fraction {}; the range is 0 to 1, or negative if unknown",
                fraction));
  } catch (...) {
  }

  static const char* option(const th_host* h, const char* key) noexcept try {
    self(h).called("option()");
    judge(self(h), text_breach("option()", "key", key));
    // The text stays valid: options change only between calls.
    const auto it = self(h).options_.find(key ? key : "");
    return it == self(h).options_.end() ? nullptr : it->second.c_str();
  } catch (...) {
    return nullptr;
  }

  static const void* extension(const th_host* h, const char* id) noexcept try {
    self(h).called("extension()");
    judge(self(h), text_breach("extension()", "id", id));
    // A copy with the size of this build: config_table() is shared with the real host.
    static const th_config config = [] {
      th_config c = plugin::config_table();
      c.struct_size = sizeof c;
      return c;
    }();
    return id && std::string_view(id) == TH_CONFIG_ID ? &config : nullptr;
  } catch (...) {
    return nullptr;
  }
};

// callbacks_allowed_ counts calls in progress and instances; a thread that calls between them is found here.
// A call from a foreign thread during some other call is not.
void CheckingHost::called(const char* what) {
  if (callbacks_allowed_ == 0)
    record_.breach(
        Rule::kCallbackOutsideCall,
        fmt::format(
            "the host's {} was called while no call into the plugin was running and no instance existed",
            what));
}

CheckingHost::CheckingHost(BreachRecord& record) : record_(record) {
  table_.struct_size = sizeof table_;
  table_.abi_major = TH_ABI_MAJOR;
  table_.abi_minor = TH_ABI_MINOR;
  table_.self = this;
  table_.name = "trainhost";
  table_.version = TRAINHOST_VERSION;
  table_.log = &CheckingCallbacks::log;
  table_.alloc = &CheckingCallbacks::alloc;
  table_.release = &CheckingCallbacks::release;
  table_.took = &CheckingCallbacks::took;
  table_.cancelled = &CheckingCallbacks::cancelled;
  table_.progress = &CheckingCallbacks::progress;
  table_.option = &CheckingCallbacks::option;
  // Two threads: enough for a pool to be one, few enough for small machines.
  table_.thread_budget = 2;
  table_.extension = &CheckingCallbacks::extension;
}

// The fields that a plugin could gain by: answers, memory and its own pointer.
void CheckingHost::check_table_unchanged() {
  if (table_.self != this || table_.struct_size != sizeof table_ || table_.log != &CheckingCallbacks::log ||
      table_.alloc != &CheckingCallbacks::alloc)
    record_.breach(Rule::kInputChanged, "the host's table was modified");
}

}  // namespace trainhost::plugin_validator
