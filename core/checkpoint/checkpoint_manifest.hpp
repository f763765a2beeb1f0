// manifest.json of one checkpoint: what it is, and the length and hash of every file and tensor in it. The
// last member, "seal", is the hash of all text before it, so that a flipped bit in the manifest itself is
// found too.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/store.hpp"

namespace trainhost::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::uint64_t kManifestFormat = 1, kMaxManifestBytes = 256u << 20;

struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string xxh3;                            // of the whole file
  std::map<std::string, std::string> tensors;  // of each tensor's data, where the file is safetensors
};

struct Manifest {
  Meta meta;
  std::uint64_t serial =
      0;  // counts the checkpoints published in a directory: the order of age, whatever their steps
  std::vector<FileRecord> files;
};

std::string manifest_text(const Manifest& m);
/// Throws run_error saying what is wrong, without the file's name.
Manifest parse_manifest(std::string_view text);

/// Reads a file once and takes its length and hashes.
FileRecord record_of(const std::filesystem::path& file);

/// What is wrong with a checkpoint directory; "" when every file has its length and hash. `m` gets the
/// manifest as soon as that is good in itself.
std::string damage_of(const std::filesystem::path& dir, Manifest& m);

}  // namespace trainhost::checkpoint
