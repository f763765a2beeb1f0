// What is remembered about plugin files between runs: manifests and verdicts, by everything that they depend
// on. A cache that is cut, changed, somebody else's or of another version counts as empty: it is only ever a
// saving. Who asks: scan.hpp; what may be remembered: depends_on_the_file_alone().
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/plugin_cache_format.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

class Cache {
 public:
  /// Reads `file`; an empty path remembers nothing. `host` names the build of this program and its interface:
  /// entries of other builds are kept and not seen.
  Cache(std::filesystem::path file, std::string host);

  /// What is known of the file at this path, if id and sidecar are still what they were.
  const Remembered* find(const std::filesystem::path& plugin, const FileId& id, const FileId& sidecar) const;
  void put(const std::filesystem::path& plugin, Remembered what);

  /// Writes what was put since: what other processes wrote meanwhile stays. By a new file in place of the old
  /// one; failures are silent.
  void save();

 private:
  std::filesystem::path file_;
  std::string host_;
  std::map<std::string, std::string> lines_;        // "host \t path" -> entry, as in the file
  std::map<std::string, std::string> fresh_;        // put and not yet saved
  mutable std::map<std::string, Remembered> read_;  // parsed
};

/// Version, interface and identity of the program that runs.
std::string host_identity();

/// Whether a refusal will hold until the file changes: not so for what depends on permissions, other files or
/// devices.
bool depends_on_the_file_alone(const Refused& why);

}  // namespace trainhost::plugin
