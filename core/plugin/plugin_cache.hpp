// Results of file validation and trial loads, stored between runs under everything that they depend on. A
// cache file that is truncated, modified, owned by another user or of another version counts as empty: the
// cache only saves time. Used by scan.hpp; depends_only_on_file() decides what may be stored.
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
  /// Reads `file`; an empty path disables the cache. `host` identifies the build of this program; entries
  /// of other builds are kept in the file but not used.
  Cache(std::filesystem::path file, std::string host);

  /// The entry of the file at this path, if its identity and that of its sidecar are unchanged; else
  /// nullptr.
  const CacheEntry* find(const std::filesystem::path& plugin, const FileId& id, const FileId& sidecar) const;
  void put(const std::filesystem::path& plugin, CacheEntry what);

  /// Writes new entries and keeps those that other processes wrote meanwhile. Replaces the file atomically.
  /// Failures are ignored.
  void save();

 private:
  std::filesystem::path file_;
  std::string host_;
  std::map<std::string, std::string> lines_;          // "host \t path" -> entry, as in the file
  std::map<std::string, std::string> unsaved_;        // put and not yet saved
  mutable std::map<std::string, CacheEntry> parsed_;  // parsed
};

/// Version, interface version and identity of this program.
std::string host_identity();

/// Whether a rejection stays valid until the file changes. False for rejections that depend on permissions,
/// other files or devices.
bool depends_only_on_file(const Rejection& why);

}  // namespace trainhost::plugin
