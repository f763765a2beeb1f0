// Finds and loads the engine of a front end, once per process: ../engines/NAME relative to the plugin's
// folder.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>

#include "plugins/common/engine_table.hpp"

namespace trainhost::plugins {

/// Description of an engine. Strings are constants.
struct EngineFile {
  const char* plugin;        // "cpu"
  const char* file;          // "cpu-openblas.so"
  const char* symbol;        // of EngineEntry
  const char* when_missing;  // hint for the user if the file is missing
  const void* own;           // address of any function of the plugin: identifies the plugin's file
};

class EngineLoader {
 public:
  explicit EngineLoader(const EngineFile& file) : file_(file) {}
  EngineLoader(const EngineLoader&) = delete;

  /// The engine's table. `open` returns a dlopen handle for the path or throws; it is not called again after
  /// a success. Errors: abi::StatusError (TH_E_UNAVAILABLE) if the file is missing or from another build; the
  /// next call tries again. Thread-safe. The library stays loaded until the process ends.
  const EngineTable& table(const std::function<void*(const std::filesystem::path&)>& open);
  /// The table after a successful table().
  const EngineTable& loaded() const { return *table_.load(std::memory_order_acquire); }

 private:
  const EngineTable* load(const std::function<void*(const std::filesystem::path&)>& open) const;
  const EngineFile file_;
  std::atomic<const EngineTable*> table_{nullptr};
  std::mutex loading_;
};

[[noreturn]] void unavailable(const std::string& why, const std::string& hint = {});

}  // namespace trainhost::plugins
