// The tag [inst] of the interface, kept at run time: calls on an instance are made one at a time, none from
// inside another, none after destroy(). Whoever breaks it is the host itself, so the error names both calls;
// the plugin hears nothing of it.
#pragma once
#include <fmt/format.h>

#include <atomic>
#include <string>

#include "core/plugin/plugin.hpp"

namespace trainhost::plugin {

class Turns {
 public:
  /// While it lives, one call runs. Throws PluginError ("state") when another does, or when the instance is
  /// gone.
  class Turn {
   public:
    Turn(Turns& turns, const std::string& plugin, const char* call) : turns_(turns) {
      const char* running = nullptr;
      if (turns_.running_.compare_exchange_strong(running, call)) return;
      throw PluginError(
          Exit::kFailed, "state",
          running == kGone
              ? fmt::format("{}() was called on an instance of plugin {} after destroy()", call, plugin)
              : fmt::format("{}() was called while {}() ran on the same instance of plugin {}", call, running,
                            plugin),
          "a bug of trainhost, please report it", 0);
    }
    ~Turn() { turns_.running_ = nullptr; }
    Turn(const Turn&) = delete;

   private:
    Turns& turns_;
  };

  /// A new instance takes the place of the one that is gone.
  void begin() { running_ = nullptr; }
  /// destroy() comes now: every later Turn throws. False when a call still runs, or when it was said before.
  bool end() {
    const char* none = nullptr;
    return running_.compare_exchange_strong(none, kGone);
  }

 private:
  static constexpr const char* kGone = "destroy";
  std::atomic<const char*> running_{nullptr};  // a literal; null between calls
};

}  // namespace trainhost::plugin
