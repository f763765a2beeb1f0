// See scratch_directory.hpp.
#include "core/verify/scratch_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/base/error.hpp"

namespace trainhost::verify {

ScratchDirectory::ScratchDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "trainhost-verify-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw run_error("cannot make a directory " + pattern + ": " + std::strerror(errno));
  path_ = pattern;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace trainhost::verify
