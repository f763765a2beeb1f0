// Lists the published checkpoints of a directory, most recent first, without verifying their data. A name
// with
// ".tmp." is never a checkpoint.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainhost::checkpoint {

struct Candidate {
  std::string name;  // "step-300"
  std::uint64_t step = 0, serial = 0;
  std::string problem;  // reason why its manifest cannot be read; its serial is then 0 and it sorts last
};

/// Sorted by serial, then step, descending. Empty if the directory does not exist.
std::vector<Candidate> candidates(const std::filesystem::path& dir);
/// The serial for the next checkpoint; `all` as returned by candidates().
std::uint64_t next_serial(const std::vector<Candidate>& all);

/// All names in a directory, sorted. Throws run_error if it cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& dir);

}  // namespace trainhost::checkpoint
