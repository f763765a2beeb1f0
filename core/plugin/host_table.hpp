// The table of functions that a plugin may call: memory through the ledger, log, cancel, options. One table a
// plugin. Nothing thrown by the host's own callbacks crosses into the plugin.
#pragma once
#include <map>
#include <memory>
#include <string>

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
  const th_host* get() const { return &table_; }
  HostContext& context() const { return *context_; }

 private:
  friend struct HostCallbacks;
  std::shared_ptr<HostContext> context_;
  std::string id_;
  std::map<std::string, std::string> options_;  // this plugin's [plugin.ID]
  th_host table_{};
};

}  // namespace trainhost::plugin
