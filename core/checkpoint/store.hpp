// Checkpoints of one output directory, written by the protocol of core/checkpoint/README.md: staged in
// step-N.tmp.*, synced and hashed, published by rename, verified; then old ones are removed. Once the first
// checkpoint is verified, a verified one exists at all times. The one with the lowest validation loss can be
// kept too.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/phase_sink.hpp"

namespace trainhost::checkpoint {

/// Writes `data` to `target` atomically: temporary file in the same directory, fsync, rename, fsync of the
/// directory.
void write_file_atomically(const std::filesystem::path& target, std::string_view data);

/// Throws run_error with both sizes if the file system of `dir` has less than 1.1 * bytes free for `what` ("a
/// checkpoint").
void require_free_space(const std::filesystem::path& dir, std::uint64_t bytes, const std::string& what);

/// Locks DIR/lock with flock and writes process id and host into it. Throws run_error with the holder if
/// another run has the lock.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& dir);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

struct Meta {              // part of manifest.json
  std::uint64_t step = 0;  // completed optimizer steps
  std::string kernel_set, config_digest, program_version, backend;
  std::map<std::string, std::string> extra;
};

/// A file of a checkpoint, as its manifest states it.
struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string xxh3;                            // hash of the whole file, 32 hex digits
  std::map<std::string, std::string> tensors;  // hash of the data of each tensor; none of a file of one rank
};

class Store {
 public:
  /// Manages dir/step-N/, dir/latest and dir/best. Keeps at least two verified checkpoints, even if `keep` is
  /// smaller.
  Store(std::filesystem::path dir, std::uint64_t keep);
  /// Saves a checkpoint and returns its directory. `write_shards(tmp_dir)` writes the files (no directories);
  /// they are hashed, published as step-N and verified, then old checkpoints are removed. After a failure the
  /// earlier checkpoints are unchanged; step-N exists only if it was verified (then writing `latest` or
  /// removing old ones failed). Throws before writing if less than 1.1 * expected_bytes are free.
  std::filesystem::path save(const Meta& meta, std::uint64_t expected_bytes,
                             const std::function<void(const std::filesystem::path& tmp)>& write_shards);
  /// The parts of save(), for ranks that write a checkpoint together: the first one calls them, in this
  /// order.
  struct Staged {
    std::filesystem::path dir, target;  // where files are written; step-N
    std::uint64_t serial = 0;
    bool published = false, replaced = false;
  };
  /// Creates the directory for the files. Throws as save() does.
  Staged stage(std::uint64_t step, std::uint64_t expected_bytes);
  /// Writes the manifest and gives the directory its name. The files are synced, the directory is not.
  void publish(Staged& s, const Meta& meta, std::vector<FileRecord> files);
  /// After the files of s.target were verified: replaces `latest` and removes old checkpoints.
  void complete(const Staged& s);
  /// After a failure before complete(): restores what was there before.
  void undo(const Staged& s) noexcept;

  struct Found {
    std::filesystem::path dir;
    Meta meta;
    std::vector<std::string> skipped;  // "step-300: weights.safetensors is 12 bytes short"
  };
  /// The most recently published checkpoint whose sizes and hashes verify, whatever its step; nullopt if
  /// there is no checkpoint. Throws run_error if there are checkpoints and none verifies.
  std::optional<Found> newest(const PhaseSink& progress = {}) const;
  /// Whether mark_best() has named a checkpoint, intact or not.
  bool names_best() const;
  /// The checkpoint that mark_best() named; nullopt if there is none, or it is damaged.
  std::optional<Found> best() const;
  /// Names step-N, which exists, as the best in dir/best. It is kept in addition to the last ones, until
  /// another one is named.
  void mark_best(std::uint64_t step);
  /// Removes what a run that was killed left behind: staging directories and temporary files. save() does it
  /// too. The caller holds the directory lock.
  void remove_leftovers() const;
  /// Number of checkpoints, intact or not. A save that was interrupted leaves none.
  std::uint64_t count() const;
  /// The most checkpoints that exist at the same time: those that are kept, and the one being written. The
  /// best one is not counted.
  std::uint64_t most() const { return keep_ + 1; }

 private:
  void rotate(const std::filesystem::path& published);

  std::filesystem::path dir_;
  std::uint64_t keep_;
  std::map<std::string, std::uint64_t>
      verified_;  // directory name -> serial, of checkpoints that this Store verified
};

}  // namespace trainhost::checkpoint
