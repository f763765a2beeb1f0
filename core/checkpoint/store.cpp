// Publishes a checkpoint. The numbers in comments are the steps of the protocol in README.md, whose order
// matters: the tests kill the process, or fail the call, at every system call. newest.cpp finds checkpoints.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <system_error>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/store.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

// One good checkpoint must remain while the next one is written and verified.
constexpr std::uint64_t kMinKept = 2;

/// Step 4: syncs and hashes the staged files.
std::vector<FileRecord> sync_files(const fs::path& staged) {
  std::vector<FileRecord> files;
  for (const std::string& name : names_in(staged)) {
    if (!fs::is_regular_file(fs::symlink_status(staged / name)))
      throw run_error(fmt::format("{} is not a regular file: a checkpoint may contain only files",
                                  escaped((staged / name).string())));
    // The trainer may have written the files without syncing them.
    sync_file(staged / name);
    files.push_back(record_of(staged / name));
  }
  return files;
}

}  // namespace

/// f_bavail, not f_bfree: blocks reserved for root cannot be used by the run. The check is only a prediction,
/// since others use the disk as well; a disk that fills later fails in write_all().
void require_free_space(const fs::path& dir, std::uint64_t bytes, const std::string& what) {
  struct statvfs v;
  int r;
  do r = ::statvfs(dir.c_str(), &v);
  while (r != 0 && errno == EINTR);
  if (r != 0) throw_errno("query the free space of", dir, errno);
  std::uint64_t free = 0;
  // Some network file systems report sizes near 2^64.
  if (__builtin_mul_overflow(std::uint64_t{v.f_bavail}, std::uint64_t{v.f_frsize}, &free)) free = kMaxBytes;
  // 10 % for the manifest, directory blocks and the rounding of files to blocks.
  std::uint64_t need = checked_add(bytes, bytes / 10, what.c_str());
  if (free < need)
    throw run_error(fmt::format("{} has {} free, but {} needs {}", escaped(dir.string(), 4096),
                                format_bytes(free), what, format_bytes(need)),
                    "free disk space, or reduce output.keep");
}

Store::Store(fs::path dir, std::uint64_t keep) : dir_(std::move(dir)), keep_(std::max(keep, kMinKept)) {}

void Store::remove_leftovers() const {
  if (file_type_of(dir_) == fs::file_type::not_found) return;  // a run without checkpoints
  for (const std::string& name : names_in(dir_))
    if (is_temp_name(name) &&
        (name.starts_with("step-") || name.starts_with("latest.") || name.starts_with("best.")))
      remove_tree(dir_ / name);
}

Store::Staged Store::stage(std::uint64_t step, std::uint64_t expected_bytes) {
  make_directories(dir_);
  remove_leftovers();
  require_free_space(dir_, expected_bytes, "a checkpoint");  // 1
  Staged s;
  s.target = dir_ / fmt::format("step-{}", step), s.dir = temp_beside(s.target);
  // One above the highest number in a readable manifest, whatever the steps are.
  s.serial = next_serial(candidates(dir_));
  make_directory(s.dir);
  return s;
}

/// The manifest is written last: a directory without one is not a checkpoint, so a kill before this point
/// leaves nothing that looks like one.
void Store::publish(Staged& s, const Meta& meta, std::vector<FileRecord> files) {
  Manifest m;
  m.meta = meta, m.serial = s.serial, m.files = std::move(files);
  write_file_atomically(s.dir / kManifestName, manifest_text(m));  // 5; also syncs the directory
  s.replaced = publish_directory(s.dir, s.target);                 // 6
  s.published = true;
  sync_directory(dir_);
}

void Store::undo(const Staged& s) noexcept try {
  if (s.published && s.replaced) publish_directory(s.dir, s.target);  // restores the previous one
  if (s.published && !s.replaced) rename_path(s.target, s.dir);
  remove_tree(s.dir);
} catch (...) {  // the first failure is reported; leftovers have a temporary name
}

void Store::complete(const Staged& s) {
  assert(s.published);
  const std::string name = s.target.filename().string();
  // rotate() need not read again what was verified. The serial number identifies the content.
  verified_[name] = s.serial;
  write_file_atomically(dir_ / "latest", name + "\n");  // 8
  if (s.replaced) remove_tree(s.dir);
  rotate(s.target);  // 9
}

/// Must be called with the directory lock held. Until publish() nothing visible changes; from there to the
/// end of verification an error undoes the publication. After verification the checkpoint stays, even if
/// `latest` or the removal of old ones fails.
fs::path Store::save(const Meta& meta, std::uint64_t expected_bytes,
                     const std::function<void(const fs::path& tmp)>& write_shards) {
  Staged s = stage(meta.step, expected_bytes);
  try {
    write_shards(s.dir);  // 2 and 3: the caller's state does not change while it is written
    publish(s, meta, sync_files(s.dir));
    Manifest m;
    // Read through the page cache: this finds damage in memory and in the file system, not in the disk.
    if (std::string damage = damage_of(s.target, m); !damage.empty())  // 7
      throw run_error(
          fmt::format("{} is damaged after writing: {}", escaped(s.target.string(), 4096), damage));
  } catch (...) {
    undo(s);
    throw;
  }
  complete(s);
  return s.target;
}

void Store::mark_best(std::uint64_t step) {
  write_file_atomically(dir_ / kBestName, fmt::format("step-{}\n", step));
}

/// Removes checkpoints older than the newest keep_ verified ones; a damaged one does not count as kept. The
/// checkpoint just published is never removed, even if its step is lower than that of others.
void Store::rotate(const fs::path& published) {
  std::uint64_t good = 0;
  const std::string best = best_name(dir_);
  // Newest first. Each is verified once per process; a checkpoint that another process wrote is hashed here.
  for (const Candidate& c : candidates(dir_)) {
    if (good >= keep_ && c.name == best) continue;
    if (good >= keep_ && dir_ / c.name != published) {
      // Renamed first: a half-removed directory must not be taken for a checkpoint after a kill.
      fs::path renamed = temp_beside(dir_ / c.name);
      rename_path(dir_ / c.name, renamed);  // no longer the name of a checkpoint
      remove_tree(renamed);
      verified_.erase(c.name);
      continue;
    }
    auto known = verified_.find(c.name);
    Manifest m;
    bool is_good = c.problem.empty() && ((known != verified_.end() && known->second == c.serial) ||
                                         damage_of(dir_ / c.name, m).empty());
    if (!is_good) continue;
    verified_[c.name] = c.serial;
    ++good;
  }
}

}  // namespace trainhost::checkpoint
