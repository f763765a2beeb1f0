// manifest.json of a checkpoint: its metadata, and the length and hash of each file and tensor. The last
// member, "seal", is the hash of the text before it, so damage to the manifest itself is detected too.
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
inline constexpr const char* kBestName = "best";  // a file with the name of a checkpoint
inline constexpr std::uint64_t kManifestFormat = 1, kMaxManifestBytes = 256u << 20;

struct Manifest {
  Meta meta;
  // Number of the checkpoint within its directory: the order in which they were published, whatever their
  // steps.
  std::uint64_t serial = 0;
  std::vector<FileRecord> files;
};

std::string manifest_text(const Manifest& m);
/// Throws run_error with the reason, without the file name.
Manifest parse_manifest(std::string_view text);

/// Reads a file once and computes its length and hashes.
FileRecord record_of(const std::filesystem::path& file);

/// The damage of one file in words; "" if it has its recorded length and hash.
std::string damage_of_file(const std::filesystem::path& dir, const FileRecord& recorded,
                           const std::function<void(std::uint64_t bytes)>& on_read = {});

/// The damage of a checkpoint directory in words; "" if every file has its recorded length and hash. Stores
/// the manifest in `m` if that can be parsed. `progress`: reading all files takes long.
std::string damage_of(const std::filesystem::path& dir, Manifest& m, const PhaseSink& progress = {});

/// A published checkpoint whose data were not verified yet. A name with ".tmp." is never a checkpoint.
struct Candidate {
  std::string name;  // "step-300"
  std::uint64_t step = 0, serial = 0;
  std::string problem;  // reason why its manifest cannot be read; its serial is then 0 and it sorts last
};

/// Sorted by serial, then step, descending. Empty if the directory does not exist.
std::vector<Candidate> candidates(const std::filesystem::path& dir);
/// The serial for the next checkpoint; `all` as returned by candidates().
std::uint64_t next_serial(const std::vector<Candidate>& all);

/// The name in the file `best` of a directory of checkpoints; "" if there is none or it is no such name.
std::string best_name(const std::filesystem::path& dir);

/// All names in a directory, sorted. Throws run_error if it cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& dir);

}  // namespace trainhost::checkpoint
