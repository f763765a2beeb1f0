// Enforces the tag [inst] of the interface at run time: one call at a time per instance, no nested call,
// none after destroy(). A violation is a bug in the host, so the error names both calls and the plugin is
// not called.
#pragma once
#include <fmt/format.h>

#include <atomic>
#include <string>

#include "core/plugin/plugin.hpp"

namespace trainhost::plugin {

class InstanceCalls {
 public:
  /// Marks one call as running until it is destroyed. Throws PluginError ("state") if another call runs or
  /// the instance was destroyed.
  class Scope {
   public:
    Scope(InstanceCalls& calls, const std::string& plugin, const char* call) : calls_(calls) {
      const char* running = nullptr;
      if (calls_.running_.compare_exchange_strong(running, call)) return;
      throw PluginError(
          Exit::kFailed, "state",
          running == kGone
              ? fmt::format("{}() was called on an instance of plugin {} after destroy()", call, plugin)
              : fmt::format("{}() was called while {}() ran on the same instance of plugin {}", call, running,
                            plugin),
          "a bug in trainhost: please report it", 0);
    }
    ~Scope() { calls_.running_ = nullptr; }
    Scope(const Scope&) = delete;

   private:
    InstanceCalls& calls_;
  };

  /// Allows calls again, for a new instance.
  void reopen() { running_ = nullptr; }
  /// To be called before destroy(): every later Scope throws. Returns false if a call still runs or it was
  /// already closed.
  bool close() {
    const char* none = nullptr;
    return running_.compare_exchange_strong(none, kGone);
  }

 private:
  static constexpr const char* kGone = "destroy";
  std::atomic<const char*> running_{nullptr};  // a string literal; null between calls
};

}  // namespace trainhost::plugin
