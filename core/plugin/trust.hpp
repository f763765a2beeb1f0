// Who could have written a plugin file: rejects files and directories that are writable by anyone except
// root, the user and the owner of this program. Checks permission bits and owners, not access control lists,
// and never the content. Used by file_validation.hpp.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

/// Caches directories, so that many files in one directory cost one walk up the tree.
class Trust {
 public:
  /// Throws Rejection (validation): world_writable, group_writable, foreign_owner; the same with suffix
  /// _directory for a parent directory. `file` must be canonical. A directory with the sticky bit (/tmp) may
  /// be world-writable, because the bit protects the files of other users. A writing group must be root's or
  /// the user's private group (same name as the user), so umask 002 is accepted.
  void check(const std::filesystem::path& file);

  /// The same for a directory and its parents.
  void validate_directory(const std::filesystem::path& directory);

 private:
  std::optional<Rejection> find_path_problem(const std::filesystem::path& directory);
  std::map<std::filesystem::path, std::optional<Rejection>> known_;
};

/// Whether another user could create a file in the directory, or create the directory if it does not exist.
/// Stricter than Trust, because the sticky bit does not prevent adding files.
bool others_may_add_files(const std::filesystem::path& directory);

}  // namespace trainhost::plugin
