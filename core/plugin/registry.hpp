// Finds, validates, loads and lists plugins. Every candidate file gets a status and, unless it is ok, a
// reason. Libraries stay loaded until the process exits.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/communicator.hpp"
#include "core/plugin/ledger.hpp"
#include "core/plugin/plugin.hpp"
#include "core/plugin/plugin_manifest.hpp"

namespace trainhost::plugin {

enum class Status { kOk, kUnavailable, kRejected };

struct Candidate {
  std::filesystem::path file;  // canonical
  Status status = Status::kOk;
  std::string stage,
      code;            // where it failed: "validation"/"not_elf", "load"/"no_entry", "probe"/"unavailable"
  std::string reason;  // one sentence; empty if ok
  std::string hint;
  VendorError native;                 // the error number with which the reason begins
  Manifest manifest;                  // empty id if unreadable
  std::vector<std::string> warnings;  // harmless side effects
  std::vector<std::string> notes;     // what it logged in probe(): which device it uses
  bool from_cache = false;            // the result comes from the cache; the file was neither read nor run
};

/// Not an id of a plugin: the entry of HostOptions::plugin_options with the settings of a framework, its name
/// among them ("framework"). Estimators whose manifest lists that framework get them as options.
inline constexpr const char* kFrameworkOptions = "";
/// Options of every plugin, "true" while set_interest() says so.
inline constexpr const char *kOnlyIfItFits = "only_if_it_fits", *kVerdictOnly = "verdict_only",
                            *kWithoutBounds = "without_upper_bounds";

/// What of an estimate its caller reads. Estimators may omit the rest.
struct Interest {
  bool only_if_it_fits = false;  // beyond the budget the bytes of the peak alone, and no notes
  bool verdict_only = false;     // with it: or any number of bytes beyond the budget
  bool upper_bounds = true;      // of each entry
};

struct HostOptions {
  std::uint32_t thread_budget = 0;                                           // 0 = all cores
  std::map<std::string, std::map<std::string, std::string>> plugin_options;  // [plugin.NAME]
  std::function<void(int level, const std::string& where, const std::string& text)> log;
  std::function<bool()> cancelled;
  /// Called before each stage of loading: "load", "start". For the child of a trial load.
  std::function<void(const char* stage)> stage;

  /// The program that runs trial loads when its only argument is kTrialLoadArgument (trial_load.hpp):
  /// usually this program. Empty: no trial loads.
  std::filesystem::path trial_load_program;
  double trial_load_seconds = 30;
  /// The cache file (plugin_cache.hpp); empty: no cache.
  std::filesystem::path cache_file;

  /// Files in the directories `allow_in` are used only if `allow` contains the SHA-256 of their content in
  /// hex. An empty `allow` allows all.
  std::vector<std::filesystem::path> allow_in;
  std::vector<std::string> allow;

  /// Estimators of the calling process, for example functions in Python. One with the id of a plugin replaces
  /// it. They describe every framework.
  std::vector<std::shared_ptr<Estimator>> estimators;
};

/// The program whose folder has the plugins, whose owner is trusted, and which carries out trial loads:
/// the running one, unless set_program_file() has named another.
const std::filesystem::path& program_file();
/// For a library in a process of another program; called before the first registry is made. Throws run_error
/// if there is no such file.
void set_program_file(const std::filesystem::path& file);

/// $TRAINHOST_CACHE, else $XDG_CACHE_HOME/trainhost, else ~/.cache/trainhost, with plugins-1.cache in it;
/// empty if none of them is set or the program runs setuid. Throws usage_error if $TRAINHOST_CACHE is
/// relative.
std::filesystem::path default_cache_file();

/// Validates one file and reads its manifest, as the scan does. Runs none of its code.
Candidate inspect_file(const std::filesystem::path& file);

/// Directories in search order: --plugin-path, TRAINHOST_PLUGIN_PATH, the run file's, beside the program
/// (<exe>/../lib/trainhost/plugins). Throws usage_error for a relative or empty element; missing directories
/// are allowed.
std::vector<std::filesystem::path> search_path(const std::vector<std::filesystem::path>& command_line,
                                               const std::vector<std::filesystem::path>& run_file);

/// The last of them, <exe>/../lib/trainhost/plugins; empty if the path of the program is unknown.
std::filesystem::path program_folder();

class Registry {
 public:
  Registry(std::vector<std::filesystem::path> directories, HostOptions options);
  ~Registry();
  Registry(const Registry&) = delete;

  /// Validates every *.so in the directories and reads its manifest. Runs no code of the files.
  void scan();
  const std::vector<Candidate>& candidates() const;

  /// A registry of the same candidates, as this one knows them now, with other [plugin.NAME] tables. Reads no
  /// file again. Call it before this registry loads a plugin: a failure may depend on its options.
  std::unique_ptr<Registry> with_plugin_options(decltype(HostOptions::plugin_options) options);

  /// Ids of that kind that are not rejected, by priority then name.
  std::vector<std::string> ids(const std::string& kind) const;

  /// Loads on first use. Throws Error(kUsage) with the nearest id if no file provides it, PluginError if
  /// the file is rejected.
  Estimator& estimator(const std::string& id);
  Trainer& trainer(const std::string& id);
  CommunicatorPlugin& communicator(const std::string& id);
  /// The file that provides the id; nullptr if none does, or HostOptions::estimators has it.
  const Candidate* find(const std::string& id) const;

  /// Loads and probes every candidate that is not yet rejected, so that each has its final status (`plugins
  /// list`).
  void probe_all();

  Ledger& ledger();

  /// The ranks of the run that sessions created from now on train in; null: one process. Must outlive them.
  /// timeout_ms: of waits for other ranks; 0: none.
  void set_ranks(Communicator* ranks, std::uint64_t timeout_ms = 0);

  /// From now on, what of the estimates is of interest.
  void set_interest(const Interest& interest);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainhost::plugin
