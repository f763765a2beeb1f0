// What the targets have in common: a violated guarantee, the rejection of an input, and a folder in memory
// for readers that need a path.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::fuzz {

inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Removed at the end of the process.
class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/fuzz-XXXXXX");
    require(::mkdtemp(name.data()) != nullptr, "cannot create a folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// A reader may reject an input with a message, and with nothing else.
template <class F>
void rejected_or(F&& read) {
  try {
    read();
  } catch (const Error& e) {
    require(*e.what() && valid_utf8(e.what()), "rejected without a reason, or with one that is not UTF-8");
  }
}

}  // namespace trainhost::fuzz
