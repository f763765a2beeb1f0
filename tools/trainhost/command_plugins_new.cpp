// trainhost plugins new: write the project of a new plugin. The files come from core/plugin_template.
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/plugin_template/project.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// The file of an installed plugin with that id; "" if there is none.
std::string file_with_same_id(const std::string& id) {
  CommonArguments quiet;
  quiet.quiet = true;
  const auto registry = make_registry(quiet, nullptr);
  const plugin::Candidate* found = registry->find(id);
  return found ? found->file.string() : "";
}

/// The command that builds and tests the project. In a build folder of trainhost there is no installed SDK:
/// C and C++ need its headers and its CMake package, Rust the program alone.
std::string next_command(const std::string& directory, const std::string& language) {
  std::error_code ec;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ec),
                              build = program.parent_path().parent_path();
  const std::string folder = escaped(directory), from = escaped(build.string(), 4096);
  if (ec || !std::filesystem::exists(build / "CMakeCache.txt", ec))
    return fmt::format("cd {} && ./ci.sh", folder);
  if (language == "rust") return fmt::format("cd {} && TRAINHOST_PREFIX={} ./ci.sh", folder, from);
  return fmt::format(
      "cmake --install {0} --prefix {0}/prefix && cd {1} && TRAINHOST_PREFIX={0}/prefix ./ci.sh", from,
      folder);
}

}  // namespace

Exit run(const PluginsNewArguments& a) {
  plugin_template::Request request;
  request.name = a.name;
  request.kind = a.kind;
  request.lang = a.language;
  request.family = a.family;
  const std::vector<plugin_template::File> files = plugin_template::project(request);
  const std::filesystem::path directory = a.directory.empty() ? a.name : a.directory;
  // Throws before anything is written if the directory has files.
  plugin_template::write(directory, files);
  std::size_t vendored_files = 0;  // of the crate trainhost-sdk, printed as one line
  for (const plugin_template::File& f : files) {
    if (f.path.starts_with("vendor/"))
      ++vendored_files;
    else
      fmt::print("  {}\n", escaped((directory / f.path).string()));
  }
  if (vendored_files)
    fmt::print("  {}  the crate trainhost-sdk, {} files\n", escaped((directory / "vendor").string()),
               vendored_files);
  // After writing: the note does not prevent the project.
  if (const std::string other = file_with_same_id(a.name); !other.empty())
    fmt::print(
        "\nNote: {} already has the id '{}'. Of two plugins with one id, only the first in the search order "
        "is "
        "used: choose another name.\n",
        escaped(other, 4096), a.name);
  fmt::print("\nNext: {}\nREADME.md in that folder says what to change first.\n",
             next_command(directory.string(), a.language));
  return Exit::kDone;
}

}  // namespace trainhost::cli
