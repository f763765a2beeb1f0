// Checkpoints of one output directory, under the protocol of core/checkpoint/README.md: staged in
// step-N.tmp.*, every file fsynced and hashed, published by rename, verified, then the old ones rotated. A
// verified checkpoint exists at every moment after the first.
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

namespace trainhost::checkpoint {

/// Writes `data` to `target` atomically: temp in the same directory, fsync, rename, fsync of the directory.
void write_file_atomically(const std::filesystem::path& target, std::string_view data);

/// flock on DIR/lock with pid and host inside; throws run_error naming the holder when another run has it.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& dir);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

struct Meta {              // manifest.json beside the shards
  std::uint64_t step = 0;  // updates done
  std::string kernel_set, config_digest, program_version, backend;
  std::map<std::string, std::string> extra;
};

class Store {
 public:
  /// dir/step-N/... and dir/latest. At least two good ones are kept once there are two, also where `keep` is
  /// less.
  Store(std::filesystem::path dir, std::uint64_t keep);
  /// `write_shards(tmp_dir)` writes the files; they are hashed, published as step-N and verified, then old
  /// ones rotate. Files alone, no directories. On failure the earlier checkpoints are as they were; step-N is
  /// there only when it was already verified (what failed then was `latest`, or removing old ones).
  /// `expected_bytes`: refuses before writing when free space < 1.1 x that. Returns the published directory.
  std::filesystem::path save(const Meta& meta, std::uint64_t expected_bytes,
                             const std::function<void(const std::filesystem::path& tmp)>& write_shards);
  struct Found {
    std::filesystem::path dir;
    Meta meta;
    std::vector<std::string> skipped;  // "step-300: weights.safetensors is 12 bytes short"
  };
  /// The last published that verifies (sizes and hashes), whatever its step; nullopt when there is no
  /// checkpoint at all; throws run_error when there are some and none verifies.
  std::optional<Found> newest() const;

 private:
  void rotate(const std::filesystem::path& published);

  std::filesystem::path dir_;
  std::uint64_t keep_;
  std::map<std::string, std::uint64_t> verified_;  // directory name -> serial: checked by this Store already
};

}  // namespace trainhost::checkpoint
