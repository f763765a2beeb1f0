// Finds candidates: every *.so of a directory, validated or found in the cache. Runs no code of the files.
// Ids and loading: registry.cpp.
#pragma once
#include <filesystem>
#include <vector>

#include "core/plugin/host_table.hpp"
#include "core/plugin/plugin_cache.hpp"
#include "core/plugin/registry.hpp"

namespace trainhost::plugin {

struct ScannedFile {
  Candidate candidate;
  FileId id, sidecar;
  std::string hash;           // SHA-256 of the content; empty if it was not needed
  bool trial_loaded = false;  // a trial load succeeded; rejections are in the candidate
};

class Scan {
 public:
  Scan(HostContext& context, Cache& cache) : context_(context), cache_(cache) {}

  /// Adds the libraries of a directory, sorted by name. A file that was added before under another name is
  /// skipped.
  void add_directory(const std::filesystem::path& directory);
  std::vector<ScannedFile> take_files() { return std::move(found_); }

 private:
  void add(const std::filesystem::path& file, const std::filesystem::path& directory);
  void validate_candidate(ScannedFile& f, const std::filesystem::path& directory);
  bool find_in_cache(ScannedFile& f);
  void validate_allowed(ScannedFile& f, const std::filesystem::path& directory);
  void reject_duplicate(ScannedFile& f);
  HostContext& context_;
  Cache& cache_;
  Trust trust_;
  std::vector<ScannedFile> found_;
};

/// The rejection of a file whose id `first` already has.
Rejection duplicate_rejection(const Candidate& first);

/// Writes a rejection into a candidate.
void reject(Candidate& c, const Rejection& why);

}  // namespace trainhost::plugin
