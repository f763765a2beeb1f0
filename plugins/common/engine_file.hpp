// Finds and loads the engine of a front, once per process: ../engines/NAME as seen from the plugin's own
// file.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>

#include "plugins/common/engine_table.hpp"

namespace trainhost::plugins {

/// What a front knows of its engine. Strings are constants.
struct EngineFile {
  const char* plugin;        // "cpu"
  const char* file;          // "cpu-openblas.so"
  const char* symbol;        // of EngineEntry
  const char* when_missing;  // what the user can do when the file is not there
  const void* own;           // the address of any function of the plugin: whose file to look beside
};

class Engine {
 public:
  explicit Engine(const EngineFile& file) : file_(file) {}
  Engine(const Engine&) = delete;

  /// The engine's table. `open` gives a dlopen handle of the path, or throws with the reason; called at the
  /// first success alone. Throws abi::StatusError (unavailable): file missing, or of another build. A
  /// failure is tried again at the next call. Thread-safe. The library stays loaded for the life of the
  /// process.
  const EngineTable& table(const std::function<void*(const std::filesystem::path&)>& open);
  /// After table() succeeded; calls on an instance come only then.
  const EngineTable& loaded() const { return *table_.load(std::memory_order_acquire); }

 private:
  const EngineTable* load(const std::function<void*(const std::filesystem::path&)>& open) const;
  const EngineFile file_;
  std::atomic<const EngineTable*> table_{nullptr};
  std::mutex loading_;
};

[[noreturn]] void unavailable(const std::string& why, const std::string& hint = {});

}  // namespace trainhost::plugins
