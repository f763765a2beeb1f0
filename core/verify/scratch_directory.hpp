// A directory for what a check writes. It goes away with its owner, with all that is in it.
#pragma once
#include <filesystem>

namespace trainhost::verify {

class ScratchDirectory {
 public:
  /// In the system's directory for temporary files. Throws run_error when none can be made.
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trainhost::verify
