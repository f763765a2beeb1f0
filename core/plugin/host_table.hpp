// The table of functions that a plugin may call: memory through the ledger, log, cancellation, options. One
// table per plugin. Exceptions of the host's own callbacks never reach the plugin.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "core/plugin/abi_view.hpp"
#include "core/plugin/communicator.hpp"
#include "core/plugin/ledger.hpp"
#include "core/plugin/registry.hpp"
#include "trainhost/host.h"

namespace trainhost::plugin {

/// State shared by all plugins of one registry. Every session holds a reference to it.
struct HostContext {
  HostOptions options;
  Ledger ledger;
  std::uint32_t threads = 1;  // the thread budget, resolved
  // Registry::set_interest()
  std::atomic<bool> only_if_it_fits{false}, verdict_only{false}, without_upper_bounds{false};
  Communicator* ranks = nullptr;       // Registry::set_ranks()
  std::uint64_t ranks_timeout_ms = 0;  // likewise

  void log(int level, const std::string& where, const std::string& text) noexcept;
  void enter(const char* stage) const {
    if (options.stage) options.stage(stage);
  }
};

class HostTable {
 public:
  HostTable(std::shared_ptr<HostContext> context, std::string plugin_id);
  HostTable(const HostTable&) = delete;
  const th_host* get() const { return table_.get(); }
  /// Call before the plugin gets the table.
  void shrink(const AbiView& view) { view.shrink(table_), view.shrink(config_), view.shrink(ranks_); }
  HostContext& context() const { return *context_; }

 private:
  friend struct HostCallbacks;
  std::shared_ptr<HostContext> context_;
  std::string id_;
  std::map<std::string, std::string> options_;  // this plugin's [plugin.ID]
  std::atomic<std::size_t> progress_{0};        // hash of the last progress line
  abi::ZeroPadded<th_host> table_;
  abi::ZeroPadded<th_config> config_;
  abi::ZeroPadded<th_ranks> ranks_;
};

}  // namespace trainhost::plugin
