// One loaded plugin library: mapped by Boost.DLL, its entry called, its description checked against the
// manifest, then started. Stays mapped for the life of the process; "unloading" is stop() and forgetting.
#pragma once
#include <atomic>
#include <filesystem>
#include <memory>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/host_table.hpp"
#include "trainhost/plugin.h"

namespace trainhost::plugin {

/// Keeps the thread's floating-point mode over code that may change it; says whether it did.
class FpMode {
 public:
  FpMode();
  bool restore();  // true: it had changed and is as before again

 private:
  std::uint32_t before_;
};

class Library {
 public:
  /// Throws Refused: load/{changed, dlopen, no_entry}, abi/{null, truncated, major, slot, id, version},
  /// start/{...}.
  static std::shared_ptr<Library> open(const std::filesystem::path& file, const FileId& id,
                                       const Manifest& manifest, std::shared_ptr<HostContext> context);
  ~Library();
  Library(const Library&) = delete;

  const std::string& id() const { return manifest_.id; }
  const Manifest& manifest() const { return manifest_; }
  const th_host* host() const { return host_.get(); }
  const AbiView& view() const { return view_; }

  /// What is asked of the plugin, as it knows such structs. Throws PluginError("unsupported") where `value`
  /// has a field set that the plugin cannot see: it would answer another question.
  template <class T>
  abi::Room<T> ask(const T& value) const {
    abi::Room<T> r(value);
    if (std::string unseen = view_.fit_question(r); !unseen.empty()) refuse_unseen(unseen);
    return r;
  }
  /// An empty struct for the plugin to fill.
  template <class T>
  abi::Room<T> answer() const {
    abi::Room<T> r;
    view_.fit(r);
    return r;
  }

  /// The plugin's own table of that interface as it lies there (its struct_size first), or nullptr.
  const void* interface(const char* interface_id) const;

  /// A line in the log, once a library, so that a refusal in the middle of a choice is no silence.
  void warn_once(const std::string& text) const;

  /// After a call into the plugin: puts the floating-point mode back, with a warning the first time.
  void keep_fp_mode(FpMode& before, const char* call) const;
  /// Whether it has changed the mode so far; the log has said so.
  bool changed_fp_mode() const { return warned_; }

 private:
  Library(Manifest manifest, std::shared_ptr<HostContext> context);
  void start();
  [[noreturn]] void refuse_unseen(const std::string& field) const;
  Manifest manifest_;
  HostTable host_;
  AbiView view_;
  th_plugin table_{};  // the part of the plugin's table that both sides know
  bool started_ = false;
  mutable std::atomic<bool> warned_{false}, told_{false};
};

}  // namespace trainhost::plugin
