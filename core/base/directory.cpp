// See directory.hpp.
#include "core/base/directory.hpp"

#include <dirent.h>

#include <cerrno>
#include <memory>
#include <string_view>

namespace trainhost {

std::vector<std::string> names_in_directory(const std::string& directory, std::error_code& error,
                                            std::size_t most) {
  std::vector<std::string> out;
  error.clear();
  struct Close {
    void operator()(DIR* d) const { ::closedir(d); }
  };
  const std::unique_ptr<DIR, Close> open(::opendir(directory.c_str()));
  if (!open) {
    error.assign(errno, std::generic_category());
    return out;
  }
  while (out.size() < most) {
    errno = 0;  // the only way to distinguish the end from an error
    const dirent* entry = ::readdir(open.get());
    if (!entry) {
      if (errno != 0) error.assign(errno, std::generic_category());
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.emplace_back(name);
  }
  return out;
}

}  // namespace trainhost
