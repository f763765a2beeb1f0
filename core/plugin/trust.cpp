// See trust.hpp. In a user namespace without root, files of the system belong to the overflow user; that
// owner then counts as root. A plugin runs with all rights of the user, so every other user who could replace
// the file, or a directory on its path, must be excluded.
#include "core/plugin/trust.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "core/base/text.hpp"
#include "core/plugin/registry.hpp"

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;

/// Whether user 0 is not mapped in this user namespace; the initial namespace maps all users (count 2^32 -
/// 1).
bool root_is_hidden() {
  std::ifstream in("/proc/self/uid_map");
  std::uint64_t inside = 0, outside = 0, count = 0;
  return in >> inside >> outside >> count && !(inside == 0 && count > 65534);
}

/// Root, the current user, and the owner of this program, which the user runs already.
bool trusted_owner(uid_t owner) {
  static const std::vector<uid_t> trusted = [] {
    std::vector<uid_t> t = {0};
    struct stat program {};
    if (::stat(program_file().c_str(), &program) == 0) t.push_back(program.st_uid);
    uid_t overflow = 65534;
    std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
    if (root_is_hidden()) t.push_back(overflow);
    return t;
  }();
  return owner == ::geteuid() || std::find(trusted.begin(), trusted.end(), owner) != trusted.end();
}

/// getpwuid_r, because the trust of files may be checked from several threads.
std::string user_name(uid_t id) {
  passwd entry{}, *found = nullptr;
  char text[4096];
  if (::getpwuid_r(id, &entry, text, sizeof text, &found) == 0 && found) return found->pw_name;
  return fmt::format("user {}", id);
}

std::string group_name(gid_t id) {
  group entry{}, *found = nullptr;
  char text[16384];
  if (::getgrgid_r(id, &entry, text, sizeof text, &found) == 0 && found) return found->gr_name;
  return fmt::format("group {}", id);
}

/// Whether this is the user's private group, which has the user's name and by convention no other members.
bool private_group(gid_t id) {
  if (id == 0) return true;
  passwd entry{}, *found = nullptr;
  char text[4096];
  if (::getpwuid_r(::geteuid(), &entry, text, sizeof text, &found) != 0 || !found) return false;
  return found->pw_gid == id && group_name(id) == found->pw_name;
}

/// The problem with this file or directory itself; `suffix` and `what` tell which of the two it is. Sticky
/// directories such as /tmp are accepted: others cannot rename or remove files of the user in them.
std::optional<Rejection> find_permission_problem(const fs::path& path, const struct stat& s,
                                                 const char* suffix, const std::string& what) {
  const bool sticky = S_ISDIR(s.st_mode) && (s.st_mode & S_ISVTX);
  if ((s.st_mode & S_IWOTH) && !sticky)
    return Rejection("validation", std::string("world_writable") + suffix, "any user can write to " + what,
                     "chmod o-w " + escaped(path.string(), 4096));
  if ((s.st_mode & S_IWGRP) && !sticky && !private_group(s.st_gid))
    return Rejection(
        "validation", std::string("group_writable") + suffix,
        fmt::format("all members of the group {} can write to {}", escaped(group_name(s.st_gid)), what),
        "chmod g-w " + escaped(path.string(), 4096));
  if (!trusted_owner(s.st_uid))
    return Rejection("validation", std::string("foreign_owner") + suffix,
                     fmt::format("{} is owned by {}, who is neither root nor the current user",
                                 what == "it" ? "the file" : what, escaped(user_name(s.st_uid))),
                     "copy it to a directory that you own, or let root own it");
  return std::nullopt;
}

}  // namespace

/// Recursive up to the root: renaming a directory high above is enough to replace a file. Results are cached,
/// as all plugins of a folder share their path.
std::optional<Rejection> Trust::find_path_problem(const fs::path& directory) {
  if (const auto it = known_.find(directory); it != known_.end()) return it->second;
  std::optional<Rejection> verdict;
  struct stat s {};
  if (::stat(directory.c_str(), &s) != 0)
    verdict =
        Rejection("validation", "not_found",
                  "the attributes of its directory " + escaped(directory.string(), 4096) + " cannot be read",
                  "check the permissions of its parent directories");
  if (!verdict && directory != directory.root_path()) verdict = find_path_problem(directory.parent_path());
  if (!verdict)
    verdict = find_permission_problem(directory, s, "_directory",
                                      "its directory " + escaped(directory.string(), 4096));
  return known_[directory] = verdict;
}

void Trust::validate_directory(const fs::path& directory) {
  if (const auto verdict = find_path_problem(directory)) throw Rejection(*verdict);
}

void Trust::check(const fs::path& file) {
  struct stat s {};
  if (::stat(file.c_str(), &s) == 0)
    if (const auto verdict = find_permission_problem(file, s, "", "it")) throw Rejection(*verdict);
  validate_directory(file.parent_path());
}

/// For folders of a RUNPATH: the deepest existing one decides who can create the rest.
bool others_may_add_files(const fs::path& directory) {
  struct stat s {};
  for (fs::path p = directory;; p = p.parent_path()) {
    if (::stat(p.c_str(), &s) == 0) return (s.st_mode & S_IWOTH) || !trusted_owner(s.st_uid);
    if (p == p.root_path() || p.empty()) return false;
  }
}

}  // namespace trainhost::plugin
