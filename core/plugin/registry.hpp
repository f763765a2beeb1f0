// Finds, gates, loads and lists plugins. Every candidate file gets a status and a reason: nothing is skipped
// in silence. Libraries stay loaded for the life of the process.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/ledger.hpp"
#include "core/plugin/plugin.hpp"
#include "core/plugin/plugin_manifest.hpp"

namespace trainhost::plugin {

enum class Status { kOk, kUnavailable, kRejected };

struct Candidate {
  std::filesystem::path file;  // canonical
  Status status = Status::kOk;
  std::string stage,
      code;            // where it was refused: "gate"/"not_elf", "load"/"no_entry", "probe"/"unavailable"
  std::string reason;  // one sentence for people; empty when ok
  std::string hint;
  Native native;      // the number behind the reason, which begins with it
  Manifest manifest;  // empty id when unreadable
  std::vector<std::string>
      warnings;             // what it did and should not, and is used all the same; each follows "it"
  bool from_cache = false;  // the verdict is remembered: neither read nor run this time
};

struct HostOptions {
  std::uint32_t thread_budget = 0;                                           // 0 = every core
  std::map<std::string, std::map<std::string, std::string>> plugin_options;  // [plugin.NAME]
  std::function<void(int level, const std::string& where, const std::string& text)> log;
  std::function<bool()> cancelled;
  /// Told what the loader is about to do with a plugin: "load", "start". For the child that rehearses.
  std::function<void(const char* stage)> stage;

  /// The program that rehearses unknown plugins when its only word is kProbeWord (trial_load.hpp): this one,
  /// as a rule. Empty: they are loaded without a rehearsal.
  std::filesystem::path probe_program;
  double probe_seconds = 30;
  /// Where verdicts are remembered (plugin_cache.hpp); empty: nowhere.
  std::filesystem::path cache_file;

  /// Files of these folders are used only when the SHA-256 of their content, in hex, is in the list.
  std::vector<std::filesystem::path> allow_in;
  std::vector<std::string> allow;
};

/// $TRAINHOST_CACHE, else $XDG_CACHE_HOME/trainhost, else ~/.cache/trainhost, with plugins-1.cache in it;
/// empty when none of them is set, or the program runs with another user's rights. Throws usage_error when
/// $TRAINHOST_CACHE is relative.
std::filesystem::path default_cache_file();

/// One file by its path, as the scan would see it: gate and manifest, no code of it.
Candidate inspect(const std::filesystem::path& file);

/// Directories in search order: --plugin-path, TRAINHOST_PLUGIN_PATH, the run file's, beside the program
/// (<exe>/../lib/trainhost/plugins). Relative, empty and missing elements: the first two are refused with a
/// message.
std::vector<std::filesystem::path> search_path(const std::vector<std::filesystem::path>& command_line,
                                               const std::vector<std::filesystem::path>& run_file);

/// The last of them, <exe>/../lib/trainhost/plugins; empty when the program cannot say where it is.
std::filesystem::path program_folder();

class Registry {
 public:
  Registry(std::vector<std::filesystem::path> directories, HostOptions options);
  ~Registry();
  Registry(const Registry&) = delete;

  /// Reads the manifests of every *.so in the directories without running code of theirs; loads nothing.
  void scan();
  const std::vector<Candidate>& candidates() const;

  /// Ids of that kind that are not rejected, by priority then name.
  std::vector<std::string> ids(const std::string& kind) const;

  /// Loads on first use. Throws Error(kUsage) with the nearest name when no file provides it, PluginError
  /// when the file is refused.
  Estimator& estimator(const std::string& id);
  Trainer& trainer(const std::string& id);
  const Candidate* find(const std::string& id) const;

  /// Loads and probes everything that is not rejected yet, so that the candidates' states are complete
  /// (`plugins list`).
  void probe_all();

  Ledger& ledger();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainhost::plugin
