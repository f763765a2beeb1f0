// The plugin under test as a library in this process: mapped once, its tables copied as far as both sides
// know them. Unlike the host's loader it exposes each step, so that each step can be a check.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "trainhost/device.h"
#include "trainhost/estimator.h"
#include "trainhost/plugin.h"
#include "trainhost/trainer.h"

namespace trainhost::plugin_validator {

enum class Mapping { kForever, kUntilClosed };

class LoadedLibrary {
 public:
  /// Maps the library (RTLD_NOW, like the host). Returns "" or the message of the dynamic linker.
  std::string map(const std::filesystem::path& file, Mapping how = Mapping::kForever);
  /// dlclose(). No effect after Mapping::kForever.
  void unmap();
  bool mapped() const { return handle_ != nullptr; }

  /// The entry if it is a function of the library itself; else nullptr and the reason.
  using Entry = const th_plugin* (*)();
  Entry entry(std::string& why) const;

  /// The tables, requested again on each call, truncated or zero-filled to the size that this build knows.
  /// Throw CheckFailed.
  th_plugin table() const;
  const void* interface(const char* id) const;
  th_estimator estimator() const;
  th_trainer trainer() const;

 private:
  void* handle_ = nullptr;
  std::function<void()> close_;
};

}  // namespace trainhost::plugin_validator
