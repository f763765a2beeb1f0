// See host_table.hpp. The functions that a plugin calls, from any of its threads. None lets an exception pass
// into the plugin; each catches everything and answers as if it had failed. Texts of the plugin are bounded
// and escaped.
#include "core/plugin/host_table.hpp"

#include <functional>
#include <string_view>

#include "core/abi/enums.hpp"
#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/plugin/config_table.hpp"

namespace trainhost::plugin {

void HostContext::log(int level, const std::string& where, const std::string& text) noexcept {
  try {
    if (options.log) options.log(level, where, text);
  } catch (...) {  // a failing log must not stop the run
  }
}

struct HostCallbacks {
  static HostTable& self(const th_host* h) { return *static_cast<HostTable*>(h->self); }

  static void log(const th_host* h, std::int32_t level, const char* where, const char* text) noexcept try {
    std::string at = self(h).id_;
    if (where && *where) at += std::string("/") + where;
    // 2000 characters: a log line, not a file.
    self(h).context_->log(level, escaped(at), escaped(text ? text : "", 2000));
  } catch (...) {
  }

  static void* alloc(const th_host* h, std::uint64_t bytes, std::uint64_t align, std::uint32_t tier,
                     const char* tag) noexcept try {
    // The host allocates in its own tiers; device memory is reported with took().
    if (tier != TH_TIER_HOST && tier != TH_TIER_PINNED) return nullptr;
    return self(h).context_->ledger.alloc(bytes, align, static_cast<Tier>(tier), tag ? tag : "untagged");
  } catch (...) {
    return nullptr;
  }

  static void release(const th_host* h, void* p) noexcept { self(h).context_->ledger.release(p); }

  static void took(const th_host* h, std::int64_t bytes, std::uint32_t tier, const char* tag) noexcept try {
    if (tier == 0 || tier > abi::kLastTier) return;
    self(h).context_->ledger.took(bytes, static_cast<Tier>(tier), tag ? tag : "untagged");
  } catch (...) {
  }

  // A failing question counts as "stop": the run could otherwise not be ended.
  static std::int32_t cancelled(const th_host* h) noexcept try {
    const auto& ask = self(h).context_->options.cancelled;
    return ask && ask() ? 1 : 0;
  } catch (...) {
    return 1;
  }

  /// Logs a debug line, at most one per stage and per cent.
  static void progress(const th_host* h, const char* stage, double fraction) noexcept try {
    const int percent = fraction >= 0 && fraction <= 1 ? static_cast<int>(fraction * 100) : -1;
    const std::string what = escaped(stage ? stage : "", 80);
    // One number for stage and percent; a change of it is a new line. Equal hashes of different stages only
    // omit a line.
    const std::size_t now = std::hash<std::string>{}(what)*127 + static_cast<std::size_t>(percent + 1);
    if (self(h).progress_.exchange(now) == now) return;
    self(h).context_->log(TH_LOG_DEBUG, self(h).id_,
                          percent < 0 ? what : what + " " + std::to_string(percent) + " %");
  } catch (...) {
  }

  static const char* option(const th_host* h, const char* key) noexcept try {
    if (key && std::string_view(key) == kOnlyIfItFits)
      return self(h).context_->only_if_it_fits ? "true" : nullptr;
    if (key && std::string_view(key) == kVerdictOnly)
      return self(h).context_->verdict_only ? "true" : nullptr;
    if (key && std::string_view(key) == kWithoutBounds)
      return self(h).context_->without_upper_bounds ? "true" : nullptr;
    // The text belongs to options_, which lives as long as the table.
    auto it = self(h).options_.find(key ? key : "");
    return it == self(h).options_.end() ? nullptr : it->second.c_str();
  } catch (...) {
    return nullptr;
  }

  static const void* extension(const th_host* h, const char* id) noexcept {
    const std::string_view name = id ? id : "";
    if (name == TH_CONFIG_ID) return self(h).config_.get();
    const Communicator* ranks = self(h).context_->ranks;
    if (name != TH_RANKS_ID || !ranks) return nullptr;
    th_ranks& table = self(h).ranks_.value;
    table.rank = ranks->rank(), table.ranks = ranks->ranks();
    table.local_rank = ranks->launch().local_rank, table.local_ranks = ranks->launch().local_ranks;
    table.timeout_ms = self(h).context_->ranks_timeout_ms;
    return &table;
  }

  static Collectives& ranks(const th_ranks* t) { return *static_cast<HostTable*>(t->self)->context_->ranks; }
  /// A failing communicator is a failing connection for the trainer, which passes the message on.
  template <class F>
  static void translate(F&& f) {
    try {
      f();
    } catch (const PluginError& e) {
      throw abi::StatusError(TH_E_IO, e.what(), e.hint());
    }
  }
  /// Passed on as they are: the communicator checks them.
  static th_status start_collective(const th_ranks* t, const th_collective* c, std::uint64_t* ticket,
                                    th_error* e) noexcept {
    return abi::guard(e, [&] {
      if (!c || !ticket) throw abi::StatusError(TH_E_ARG, "an argument of start() is null");
      if (c->stream)
        throw abi::StatusError(TH_E_UNSUPPORTED, "the communicator of the run sends host memory");
      // A plugin that was built before groups existed has a shorter struct.
      const bool grouped = TH_HAS(c, th_collective, stride);
      const Collective operation{static_cast<CollectiveKind>(c->kind),
                                 static_cast<DType>(c->dtype),
                                 static_cast<Reduction>(c->reduction),
                                 c->root,
                                 c->data,
                                 c->count,
                                 c->piece,
                                 c->scratch,
                                 c->scratch_bytes,
                                 grouped ? RankGroup{c->width, c->stride} : RankGroup{}};
      translate([&] { *ticket = ranks(t).start(operation); });
    });
  }
  static th_status wait_collective(const th_ranks* t, std::uint64_t ticket, th_error* e) noexcept {
    return abi::guard(e, [&] { translate([&] { ranks(t).wait(ticket); }); });
  }
};

HostTable::HostTable(std::shared_ptr<HostContext> context, std::string plugin_id)
    : context_(std::move(context)), id_(std::move(plugin_id)) {
  if (auto it = context_->options.plugin_options.find(id_); it != context_->options.plugin_options.end())
    options_ = it->second;
  // struct_size was set by the zero-padded struct.
  table_->abi_major = TH_ABI_MAJOR;
  table_->abi_minor = TH_ABI_MINOR;
  table_->self = this;
  table_->name = "trainhost";
  table_->version = TRAINHOST_VERSION;
  table_->log = &HostCallbacks::log;
  table_->alloc = &HostCallbacks::alloc;
  table_->release = &HostCallbacks::release;
  table_->took = &HostCallbacks::took;
  table_->cancelled = &HostCallbacks::cancelled;
  table_->progress = &HostCallbacks::progress;
  table_->option = &HostCallbacks::option;
  table_->thread_budget = context_->threads;
  table_->extension = &HostCallbacks::extension;
  config_.value = config_table();
  ranks_->self = this;
  ranks_->start = &HostCallbacks::start_collective;
  ranks_->wait = &HostCallbacks::wait_collective;
}

}  // namespace trainhost::plugin
