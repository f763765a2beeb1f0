// Who could have put this file here. What we are about to run must not be writable by anybody but root, the
// user, and whoever owns this program and could as well have changed that. Looks at permission bits and
// owners, not at access lists; never at contents. See file_validation.hpp.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

/// Remembers directories, so that a hundred files in one folder cost one walk.
class Trust {
 public:
  /// Throws Refused (gate): world_writable, group_writable, foreign_owner; the same with _directory for any
  /// folder above. `file` is canonical. A sticky folder (/tmp) may be writable by all: it protects what
  /// others own. The group that may write must be root's or the user's own private one (same name as the
  /// user): umask 002 is no fault.
  void check(const std::filesystem::path& file);

  /// The same for a folder and all above it.
  void check_directory(const std::filesystem::path& directory);

 private:
  std::optional<Refused> judge_chain(const std::filesystem::path& directory);
  std::map<std::filesystem::path, std::optional<Refused>> known_;
};

/// Whether somebody else could create a file in it, or it where it does not exist yet: stricter than Trust,
/// because a sticky folder does not keep anybody from adding to it.
bool anyone_may_add(const std::filesystem::path& directory);

}  // namespace trainhost::plugin
