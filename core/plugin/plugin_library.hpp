// One loaded plugin library: mapped by Boost.DLL, its entry called, its description compared with the
// manifest, then started. It stays mapped until the process exits; destroying a Library calls stop().
#pragma once
#include <atomic>
#include <filesystem>
#include <memory>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/host_table.hpp"
#include "trainhost/plugin.h"

namespace trainhost::plugin {

/// Saves the thread's floating-point mode, and restores it after code that may change it.
class FpMode {
 public:
  FpMode();
  bool restore();  // returns true if the mode had changed

 private:
  std::uint32_t before_;
};

class Library {
 public:
  /// Throws Rejection: load/{changed, dlopen, no_entry}, abi/{null, truncated, major, slot, id, version},
  /// start/{...}.
  static std::shared_ptr<Library> open(const std::filesystem::path& file, const FileId& id,
                                       const Manifest& manifest, std::shared_ptr<HostContext> context);
  ~Library();
  Library(const Library&) = delete;

  const std::string& id() const { return manifest_.id; }
  const Manifest& manifest() const { return manifest_; }
  const th_host* host() const { return host_.get(); }
  const AbiView& view() const { return view_; }

  /// An argument, shrunk to the plugin's minor version. Throws PluginError("unsupported") if `value` sets a
  /// field that the plugin does not know and would ignore.
  template <class T>
  abi::ZeroPadded<T> fit_argument(const T& value) const {
    abi::ZeroPadded<T> r(value);
    if (std::string unseen = view_.shrink_argument(r); !unseen.empty()) throw_unseen_field(unseen);
    return r;
  }
  /// An empty result struct for the plugin to fill.
  template <class T>
  abi::ZeroPadded<T> make_result() const {
    abi::ZeroPadded<T> r;
    view_.shrink(r);
    return r;
  }

  /// The plugin's table of that interface, as returned by get() (struct_size is its first field), or
  /// nullptr.
  const void* interface(const char* interface_id) const;

  /// Logs a warning, once per library: used when a plugin is skipped while candidates are compared.
  void warn_once(const std::string& text) const;

  /// To be called after a call into the plugin: restores the floating-point mode, with a warning the first
  /// time.
  void restore_fp_mode(FpMode& before, const char* call) const;
  /// Whether the plugin has changed the mode so far; this was logged.
  bool changed_fp_mode() const { return warned_fp_mode_; }

 private:
  Library(Manifest manifest, std::shared_ptr<HostContext> context);
  void start();
  [[noreturn]] void throw_unseen_field(const std::string& field) const;
  Manifest manifest_;
  HostTable host_;
  AbiView view_;
  th_plugin table_{};  // the fields of the plugin's table that both sides know
  bool started_ = false;
  mutable std::atomic<bool> warned_fp_mode_{false}, warned_once_{false};
};

}  // namespace trainhost::plugin
