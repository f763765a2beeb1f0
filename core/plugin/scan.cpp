// See scan.hpp. Owners, permissions and properties of the machine are checked every time; results that
// depend only on the file come from the cache.
#include "core/plugin/scan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/directory.hpp"
#include "core/base/text.hpp"
#include "core/plugin/links.hpp"

namespace trainhost::plugin {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> libraries_in(const fs::path& directory, std::error_code& failed) {
  std::vector<fs::path> out;
  for (const std::string& name : names_in_directory(directory, failed))
    if (fs::path file = directory / name; file.extension() == ".so") out.push_back(std::move(file));
  std::sort(out.begin(), out.end());  // the same order on every file system
  return out;
}

/// canonical() for a file in a canonical directory: only a symbolic link must be resolved. Saves a system
/// call per path component for each of thousands of files.
fs::path real_path(const fs::path& file) {
  std::error_code failed;
  if (!fs::is_symlink(fs::symlink_status(file, failed))) return file;
  const fs::path real = fs::canonical(file, failed);
  return failed ? file : real;
}

}  // namespace

/// From here on the candidate is listed with its reason and never loaded.
void reject(Candidate& c, const Rejection& why) {
  c.status = Status::kRejected;
  c.stage = why.stage();
  c.code = why.code();
  c.reason = why.what();
  c.hint = why.hint();
  c.native = why.native();
}

Rejection duplicate_rejection(const Candidate& first) {
  return Rejection("registry", "duplicate_id",
                   fmt::format("it has the id '{}' of {}, which comes first in the search order",
                               first.manifest.id, escaped(first.file.string())),
                   "change one of the ids, or remove one of the directories");
}

/// A missing directory is normal (the default ones); only an unreadable one is worth a warning.
void Scan::add_directory(const fs::path& directory) {
  std::error_code failed;
  const fs::path real = fs::canonical(directory, failed);
  const std::vector<fs::path> files = failed ? std::vector<fs::path>{} : libraries_in(real, failed);
  if (failed) {
    const bool missing = failed == std::errc::no_such_file_or_directory;
    context_.log(missing ? 1 : 2, "plugins",
                 fmt::format("the plugin directory {} {}", escaped(directory.string()),
                             missing ? "does not exist" : "cannot be read: " + failed.message()));
  }
  for (const fs::path& file : files) add(file, directory);
}

/// Reads and validates; runs no code of the file. A file that is reached by two names counts once.
void Scan::add(const fs::path& file, const fs::path& directory) {
  ScannedFile f;
  f.candidate.file = real_path(file);
  try {
    f.id = identify(f.candidate.file);
    for (const ScannedFile& known : found_)
      if (known.id.inode != 0 && known.id.same_file(f.id)) return;
    validate_candidate(f, directory);
  } catch (const Rejection& why) {
    reject(f.candidate, why);
  }
  reject_duplicate(f);
  found_.push_back(std::move(f));
}

/// The cache is asked first. A rejection that depends on more than the file (permissions, missing libraries)
/// is not cached: it may disappear without a change of the file.
void Scan::validate_candidate(ScannedFile& f, const fs::path& directory) {
  f.sidecar = identify_sidecar(f.candidate.file);
  if (find_in_cache(f)) return validate_allowed(f, directory);
  ValidatedFile passed;
  CacheEntry r;
  try {
    validate_file(f.candidate.file, trust_, passed);
  } catch (const Rejection& why) {
    f.candidate.manifest = passed.manifest;
    if (!depends_only_on_file(why) || !(passed.id == f.id)) throw;
    r.rejected = why;
  }
  f.candidate.manifest = r.manifest = passed.manifest;
  f.id = r.id = passed.id;
  f.sidecar = r.sidecar = passed.sidecar;
  if (!context_.options.cache_file.empty()) f.hash = r.hash = content_hash(f.candidate.file, f.id);
  const std::optional<Rejection> rejected = r.rejected;
  cache_.put(f.candidate.file, std::move(r));
  if (rejected) throw Rejection(*rejected);
  validate_allowed(f, directory);
}

/// Returns true if the cache has this version of the file, and throws its rejection if it has one. The file
/// is opened only if its times are too recent to detect a change. Owner and permissions are checked in any
/// case: they can change without a new time stamp.
bool Scan::find_in_cache(ScannedFile& f) {
  const CacheEntry* r = cache_.find(f.candidate.file, f.id, f.sidecar);
  if (!r || (r->mtime_too_recent() && content_hash(f.candidate.file, f.id) != r->hash)) return false;
  trust_.check(f.candidate.file);
  f.candidate.manifest = r->manifest;
  f.candidate.warnings = r->warnings;
  f.candidate.from_cache = true;
  f.hash = r->hash;
  f.trial_loaded = r->trial_loaded;
  if (r->rejected) throw Rejection(*r->rejected);
  validate_cpu(r->manifest.cpu);
  return true;
}

/// plugins.allow restricts files from the user's folders. The hash of a cached entry is computed again: a
/// cache must not be able to allow a file.
void Scan::validate_allowed(ScannedFile& f, const fs::path& directory) {
  const HostOptions& o = context_.options;
  if (o.allow.empty() || std::find(o.allow_in.begin(), o.allow_in.end(), directory) == o.allow_in.end())
    return;
  if (f.hash.empty() || f.candidate.from_cache) f.hash = content_hash(f.candidate.file, f.id);
  if (std::find(o.allow.begin(), o.allow.end(), f.hash) == o.allow.end())
    throw Rejection("validation", "not_allowed", "it is not in the list plugins.allow of the run file",
                    "if you trust the file, add \"" + f.hash + "\" there");
}

/// Two files with one id: the first in the search order keeps it.
void Scan::reject_duplicate(ScannedFile& f) {
  Candidate& c = f.candidate;
  if (c.status == Status::kRejected) return;
  for (const ScannedFile& other : found_) {
    const Candidate& first = other.candidate;
    if (first.status == Status::kRejected || first.manifest.id != c.manifest.id) continue;
    reject(c, duplicate_rejection(first));
    context_.log(2, "plugins", fmt::format("{}: {}", escaped(c.file.string()), c.reason));
    return;
  }
}

/// For `plugins info FILE` and `plugins check FILE`: without cache and allow-list.
Candidate inspect_file(const fs::path& file) {
  Candidate c;
  c.file = real_path(file);
  Trust trust;
  ValidatedFile passed;
  try {
    validate_file(c.file, trust, passed);
  } catch (const Rejection& why) {
    reject(c, why);
  }
  c.manifest = passed.manifest;
  return c;
}

}  // namespace trainhost::plugin
