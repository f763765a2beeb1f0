// See project.hpp. Existing files are never changed: the directory is new or empty, and every file is
// created.
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
      throw usage_error("'" + shown + "' exists and is not a directory", "use another name or --dir");
    if (!fs::is_empty(directory, failed) || failed)
      throw usage_error("the directory '" + shown + "' is not empty; nothing was written",
                        "use another name or --dir");
  }
  // Create the directory first, so that the message names it if that fails.
  fs::create_directories(directory, failed);
  if (failed)
    throw run_error("cannot create the directory '" + shown + "': " + failed.message(),
                    "choose another location with --dir");
  for (const File& f : files) {
    const fs::path path = directory / f.path;
    fs::create_directories(path.parent_path(), failed);
    if (failed)
      throw run_error("cannot create the directory '" + escaped(path.parent_path().string()) +
                      "': " + failed.message());
    std::ofstream out(path, std::ios::binary);
    out << f.text;
    out.close();
    if (!out)
      throw run_error("cannot write '" + escaped(path.string()) + "'",
                      "check free space and permissions of the directory");
    if (f.executable)
      fs::permissions(path, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                      fs::perm_options::add, failed);
  }
}

}  // namespace trainhost::plugin_template
