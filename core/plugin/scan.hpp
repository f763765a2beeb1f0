// Candidates from folders: every *.so once, by gate or by memory, without running code of any. Who answers to
// a name and what is loaded: registry.cpp.
#pragma once
#include <filesystem>
#include <vector>

#include "core/plugin/host_table.hpp"
#include "core/plugin/plugin_cache.hpp"
#include "core/plugin/registry.hpp"

namespace trainhost::plugin {

struct Found {
  Candidate candidate;
  FileId id, sidecar;
  std::string hash;        // of the content, where it had to be known
  bool rehearsed = false;  // known to load well; refusals are in the candidate
};

class Scan {
 public:
  Scan(HostContext& context, Cache& cache) : context_(context), cache_(cache) {}

  /// Adds the folder's libraries in order of their names. A file that was seen already, by whatever name, is
  /// no new one.
  void folder(const std::filesystem::path& directory);
  std::vector<Found> take() { return std::move(found_); }

 private:
  void add(const std::filesystem::path& file, const std::filesystem::path& directory);
  void judge(Found& f, const std::filesystem::path& directory);
  bool recall(Found& f);
  void check_allowed(Found& f, const std::filesystem::path& directory);
  void refuse_duplicate(Found& f);
  HostContext& context_;
  Cache& cache_;
  Trust trust_;
  std::vector<Found> found_;
};

/// Why a file does not get the id that `first` has.
Refused duplicate_of(const Candidate& first);

/// Writes a refusal into a candidate.
void reject(Candidate& c, const Refused& why);

}  // namespace trainhost::plugin
