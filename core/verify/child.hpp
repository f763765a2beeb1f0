// Another process of the program itself: started with an environment of our choice, waited for, its output kept.
// Needed where a fact can only be arranged for a whole process, as that no device is visible.
#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trainhost::verify {

/// A directory that goes away with it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct ChildResult {
  int code = -1;      // exit code; 128 + signal when killed
  bool late = false;  // killed because it took longer than it may
  std::string out, err;
};

/// Runs `program` with these words. `environment` is set over our own; output goes through files in `scratch`.
/// Throws run_error when it cannot be started.
ChildResult run_child(const std::filesystem::path& program, const std::vector<std::string>& words,
                      const std::map<std::string, std::string>& environment, const std::filesystem::path& scratch,
                      std::chrono::seconds longest);

}  // namespace trainhost::verify
