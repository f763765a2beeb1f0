// See scan.hpp. Owners, permissions and the machine are asked every time; what depends on the file alone is
// remembered.
#include "core/plugin/scan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/plugin/links.hpp"

namespace trainhost::plugin {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> libraries_in(const fs::path& directory, std::error_code& failed) {
  std::vector<fs::path> out;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end; it.increment(failed))
    if (it->path().extension() == ".so") out.push_back(it->path());
  std::sort(out.begin(), out.end());  // the same order on every file system
  return out;
}

/// canonical() for a file whose folder is canonical already: only a link has to be followed.
fs::path real_path(const fs::path& file) {
  std::error_code failed;
  if (!fs::is_symlink(fs::symlink_status(file, failed))) return file;
  const fs::path real = fs::canonical(file, failed);
  return failed ? file : real;
}

}  // namespace

void reject(Candidate& c, const Refused& why) {
  c.status = Status::kRejected;
  c.stage = why.stage();
  c.code = why.code();
  c.reason = why.what();
  c.hint = why.hint();
  c.native = why.native();
}

Refused duplicate_of(const Candidate& first) {
  return Refused("registry", "duplicate_id",
                 fmt::format("the id '{}' is taken by {}, which comes first in the search order",
                             first.manifest.id, escaped(first.file.string())),
                 "rename one, or remove one of the directories");
}

void Scan::folder(const fs::path& directory) {
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

void Scan::add(const fs::path& file, const fs::path& directory) {
  Found f;
  f.candidate.file = real_path(file);
  try {
    f.id = identify(f.candidate.file);
    for (const Found& known : found_)
      if (known.id.inode != 0 && known.id.same_file(f.id)) return;
    judge(f, directory);
  } catch (const Refused& why) {
    reject(f.candidate, why);
  }
  refuse_duplicate(f);
  found_.push_back(std::move(f));
}

void Scan::judge(Found& f, const fs::path& directory) {
  f.sidecar = identify_sidecar(f.candidate.file);
  if (recall(f)) return check_allowed(f, directory);
  Passed passed;
  Remembered r;
  try {
    pass_gate(f.candidate.file, trust_, passed);
  } catch (const Refused& why) {
    f.candidate.manifest = passed.manifest;
    if (!depends_on_the_file_alone(why) || !(passed.id == f.id)) throw;
    r.refused = why;
  }
  f.candidate.manifest = r.manifest = passed.manifest;
  f.id = r.id = passed.id;
  f.sidecar = r.sidecar = passed.sidecar;
  if (!context_.options.cache_file.empty()) f.hash = r.hash = content_hash(f.candidate.file, f.id);
  const std::optional<Refused> refused = r.refused;
  cache_.put(f.candidate.file, std::move(r));
  if (refused) throw Refused(*refused);
  check_allowed(f, directory);
}

/// True when this very file was judged before; throws its refusal. Nothing of it is opened, unless its clock
/// cannot tell whether it changed.
bool Scan::recall(Found& f) {
  const Remembered* r = cache_.find(f.candidate.file, f.id, f.sidecar);
  if (!r || (r->too_fresh() && content_hash(f.candidate.file, f.id) != r->hash)) return false;
  trust_.check(f.candidate.file);
  f.candidate.manifest = r->manifest;
  f.candidate.warnings = r->warnings;
  f.candidate.from_cache = true;
  f.hash = r->hash;
  f.rehearsed = r->rehearsed;
  if (r->refused) throw Refused(*r->refused);
  check_cpu(r->manifest.cpu);
  return true;
}

void Scan::check_allowed(Found& f, const fs::path& directory) {
  const HostOptions& o = context_.options;
  if (o.allow.empty() || std::find(o.allow_in.begin(), o.allow_in.end(), directory) == o.allow_in.end())
    return;
  if (f.hash.empty() || f.candidate.from_cache) f.hash = content_hash(f.candidate.file, f.id);
  if (std::find(o.allow.begin(), o.allow.end(), f.hash) == o.allow.end())
    throw Refused("gate", "not_allowed", "is not on the list plugins.allow of the run file",
                  "if you trust it, add \"" + f.hash + "\" there");
}

/// Two files with one id: the first in the search order keeps it.
void Scan::refuse_duplicate(Found& f) {
  Candidate& c = f.candidate;
  if (c.status == Status::kRejected) return;
  for (const Found& other : found_) {
    const Candidate& first = other.candidate;
    if (first.status == Status::kRejected || first.manifest.id != c.manifest.id) continue;
    reject(c, duplicate_of(first));
    context_.log(2, "plugins", fmt::format("{}: {}", escaped(c.file.string()), c.reason));
    return;
  }
}

Candidate inspect(const fs::path& file) {
  Candidate c;
  c.file = real_path(file);
  Trust trust;
  Passed passed;
  try {
    pass_gate(c.file, trust, passed);
  } catch (const Refused& why) {
    reject(c, why);
  }
  c.manifest = passed.manifest;
  return c;
}

}  // namespace trainhost::plugin
