// The plugin under test as a library in this process: mapped once, never unmapped, its tables copied as far
// as both sides know them. Unlike the host's own loader it judges step by step, so that each step can be a
// check.
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

class Subject {
 public:
  /// "" after the library was mapped (RTLD_NOW, as the host does it), else what the dynamic linker said.
  std::string map(const std::filesystem::path& file, Mapping how = Mapping::kForever);
  /// dlclose(). After a mapping for ever nothing happens.
  void unmap();
  bool mapped() const { return handle_ != nullptr; }

  /// The address of the entry when it is a function of the library itself; else nullptr and the reason.
  using Entry = const th_plugin* (*)();
  Entry entry(std::string& why) const;

  /// The tables, asked for afresh each time, cut or zero-filled to what this build knows. Throw Broken.
  th_plugin table() const;
  const void* interface(const char* id) const;
  th_estimator estimator() const;
  th_trainer trainer() const;

 private:
  void* handle_ = nullptr;
  std::function<void()> close_;
};

}  // namespace trainhost::plugin_validator
