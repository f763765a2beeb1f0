// Finds and loads the engine of a front end, once per process: ../engines/NAME relative to the folder of the
// plugin's own shared library. How the file is opened (dlopen flags, environment) is up to the front end; see
// plugins/cpu/front_end/plugin.cpp and plugins/cuda/front_end/load_engine.cpp.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>

#include "plugins/common/engine_table.hpp"

namespace trainhost::plugins {

/// Identifies an engine. Strings are constants.
struct EngineFile {
  const char* plugin;        // id of the plugin, for messages: "cpu"
  const char* file;          // "cpu-openblas.so"
  const char* symbol;        // exported function of type EngineEntry
  const char* when_missing;  // hint for the user if the file is missing
  const void* own;           // address of any function of the plugin; dladdr() maps it to the plugin's file
};

class EngineLoader {
 public:
  explicit EngineLoader(const EngineFile& file) : file_(file) {}
  EngineLoader(const EngineLoader&) = delete;

  /// Returns the engine's table and loads the engine on the first call. `open` returns a dlopen handle for
  /// the path or throws; it is not called again after a success. Throws abi::StatusError (TH_E_UNAVAILABLE)
  /// if the file is missing or from another build; the next call tries again. Thread-safe. The library stays
  /// loaded until the process ends.
  const EngineTable& table(const std::function<void*(const std::filesystem::path&)>& open);
  /// ../engines/NAME beside the plugin's folder. Throws abi::StatusError if the plugin's own file is not
  /// found.
  std::filesystem::path path() const;
  bool present() const;

  /// Returns the table. Requires an earlier successful table().
  const EngineTable& loaded() const { return *table_.load(std::memory_order_acquire); }

 private:
  const EngineTable* load(const std::function<void*(const std::filesystem::path&)>& open) const;
  const EngineFile file_;
  std::atomic<const EngineTable*> table_{nullptr};  // null until loaded; never changes afterwards
  std::mutex loading_;                              // held while the engine is loaded
};

/// Throws abi::StatusError (TH_E_UNAVAILABLE).
[[noreturn]] void unavailable(const std::string& why, const std::string& hint = {});

}  // namespace trainhost::plugins
