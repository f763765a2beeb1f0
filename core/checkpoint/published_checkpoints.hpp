// The published checkpoints of a directory, newest first, before anybody looked at their data. Names with
// .tmp. in them are no checkpoints, whatever they hold.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainhost::checkpoint {

struct Candidate {
  std::string name;  // "step-300"
  std::uint64_t step = 0, serial = 0;
  std::string problem;  // why its manifest cannot be read; then its serial is unknown and it sorts last
};

/// By serial, then step, from high to low. No directory: none.
std::vector<Candidate> candidates(const std::filesystem::path& dir);
std::uint64_t next_serial(const std::vector<Candidate>& all);

/// Names of everything in a directory, sorted; throws run_error when it cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& dir);

}  // namespace trainhost::checkpoint
