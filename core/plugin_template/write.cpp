// See project.hpp. Nothing that exists is ever touched: the folder is new or empty, every file is created.
#include <fstream>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin_template/project.hpp"

namespace trainhost::plugin_template {

namespace fs = std::filesystem;

void write(const fs::path& directory, const std::vector<File>& files) {
  std::error_code failed;
  const std::string shown = escaped(directory.string());
  if (fs::exists(fs::symlink_status(directory, failed))) {
    if (!fs::is_directory(directory, failed))
      throw usage_error("'" + shown + "' exists and is no folder", "another name, or --dir");
    if (!fs::is_empty(directory, failed) || failed)
      throw usage_error("the folder '" + shown + "' exists and is not empty: nothing was written",
                        "another name, or --dir");
  }
  // The folder by itself first: where it cannot be made, that is what the message names.
  fs::create_directories(directory, failed);
  if (failed)
    throw run_error("cannot make the folder '" + shown + "': " + failed.message(),
                    "another place with --dir");
  for (const File& f : files) {
    const fs::path path = directory / f.path;
    fs::create_directories(path.parent_path(), failed);
    if (failed)
      throw run_error("cannot make the folder '" + escaped(path.parent_path().string()) +
                      "': " + failed.message());
    std::ofstream out(path, std::ios::binary);
    out << f.text;
    out.close();
    if (!out)
      throw run_error("cannot write '" + escaped(path.string()) + "'",
                      "is the disk full, or the folder read-only?");
    if (f.executable)
      fs::permissions(path, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                      fs::perm_options::add, failed);
  }
}

}  // namespace trainhost::plugin_template
