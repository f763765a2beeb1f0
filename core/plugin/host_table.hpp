// The table of functions that a plugin may call: memory through the ledger, log, cancel, options. One table a
// plugin. Nothing thrown by the host's own callbacks crosses into the plugin.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "core/plugin/abi_view.hpp"
#include "core/plugin/ledger.hpp"
#include "core/plugin/registry.hpp"
#include "trainhost/host.h"

namespace trainhost::plugin {

/// What all plugins of one registry share; outlives every session, because each keeps a reference.
struct HostContext {
  HostOptions options;
  Ledger ledger;
  std::uint32_t threads = 1;  // the budget, resolved

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
  /// Before the plugin sees it first.
  void fit(const AbiView& view) { view.fit(table_), view.fit(config_); }
  HostContext& context() const { return *context_; }

 private:
  friend struct HostCallbacks;
  std::shared_ptr<HostContext> context_;
  std::string id_;
  std::map<std::string, std::string> options_;  // this plugin's [plugin.ID]
  std::atomic<std::size_t> progress_{0};        // of the last line about it
  abi::Room<th_host> table_;
  abi::Room<th_config> config_;
};

}  // namespace trainhost::plugin
