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

/// Steps 4 and 5: syncs and hashes the staged files, and writes the manifest last. A directory without a
/// manifest is not a checkpoint, so a kill before this point leaves nothing that looks like one.
void write_manifest(const fs::path& staged, const Meta& meta, std::uint64_t serial) {
  Manifest m;
  m.meta = meta;
  m.serial = serial;
  for (const std::string& name : names_in(staged)) {
    if (!fs::is_regular_file(fs::symlink_status(staged / name)))
      throw run_error(fmt::format("{} is not a regular file: a checkpoint may contain only files",
                                  escaped((staged / name).string())));
    // The trainer may have written the files without syncing them.
    sync_file(staged / name);  // 4
    m.files.push_back(record_of(staged / name));
  }
  write_file_atomically(staged / kManifestName, manifest_text(m));  // also syncs the directory
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

/// Must be called with the directory lock held. Until publish_directory() nothing visible changes; from there
/// to the end of verification an error undoes the publication. After verification the checkpoint stays, even
/// if `latest` or the removal of old ones fails.
fs::path Store::save(const Meta& meta, std::uint64_t expected_bytes,
                     const std::function<void(const fs::path& tmp)>& write_shards) {
  make_directories(dir_);
  remove_leftovers();
  require_free_space(dir_, expected_bytes, "a checkpoint");  // 1
  const std::string name = fmt::format("step-{}", meta.step);
  const fs::path target = dir_ / name, staged = temp_beside(target);
  // One above the highest number in a readable manifest, whatever the steps are.
  const std::uint64_t serial = next_serial(candidates(dir_));
  bool replaced = false, published = false;
  try {
    make_directory(staged);
    write_shards(staged);  // 2 and 3: the caller's state does not change while it is written
    write_manifest(staged, meta, serial);
    replaced = publish_directory(staged, target);  // 6
    published = true;
    sync_directory(dir_);
    Manifest m;
    // Read through the page cache: this finds damage in memory and in the file system, not in the disk.
    if (std::string damage = damage_of(target, m); !damage.empty())  // 7
      throw run_error(fmt::format("{} is damaged after writing: {}", escaped(target.string(), 4096), damage));
  } catch (...) {
    try {
      if (published && replaced) publish_directory(staged, target);  // restores the previous one
      if (published && !replaced) rename_path(target, staged);
      remove_tree(staged);
    } catch (...) {  // report the first failure; leftovers have a temporary name
    }
    throw;
  }
  assert(published);
  // rotate() need not read again what was verified here. The serial number identifies the content.
  verified_[name] = serial;
  write_file_atomically(dir_ / "latest", name + "\n");  // 8
  if (replaced) remove_tree(staged);
  rotate(target);  // 9
  return target;
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
