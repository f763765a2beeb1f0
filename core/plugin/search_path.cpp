// The directories that are searched for plugins, in order. A relative or empty element would mean the
// working directory, which other users may control: it is an error. Files in the directories: scan.cpp.
#include <fmt/format.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/text.hpp"
#include "core/plugin/registry.hpp"

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;
constexpr const char* kVariable = "TRAINHOST_PLUGIN_PATH";

/// The running file, not argv[0], which the caller sets.
fs::path& own_program() {
  static fs::path file = "/proc/self/exe";
  return file;
}

void append(std::vector<fs::path>& to, const fs::path& directory, const char* from) {
  if (directory.empty())
    throw usage_error(fmt::format("{} has an empty element, which means the working directory", from),
                      "remove it, or use an absolute path");
  if (directory.is_relative()) {
    std::error_code failed;
    fs::path absolute = fs::absolute(directory, failed).lexically_normal();
    throw usage_error(fmt::format("{}: '{}' is not an absolute path", from, escaped(directory.string())),
                      failed ? "" : fmt::format("use {}", escaped(absolute.string())));
  }
  // Normalized, so that one directory is searched once. Links are not resolved here.
  fs::path clean = directory.lexically_normal();
  if (std::find(to.begin(), to.end(), clean) == to.end()) to.push_back(clean);
}

/// The directories in TRAINHOST_PLUGIN_PATH; ignored in a setuid program.
void append_variable(std::vector<fs::path>& to) {
  const char* value = std::getenv(kVariable);
  if (!value || !*value || ::getauxval(AT_SECURE) != 0) return;
  std::string_view rest = value;
  while (true) {
    std::size_t colon = rest.find(':');
    append(to, fs::path(rest.substr(0, colon)), kVariable);
    if (colon == rest.npos) return;
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace

const fs::path& program_file() { return own_program(); }

void set_program_file(const fs::path& file) {
  std::error_code failed;
  const fs::path program = fs::canonical(file, failed);
  if (failed)
    throw run_error(
        fmt::format("the program {} cannot be found: {}", escaped(file.string(), 4096), failed.message()),
        "install the package again");
  own_program() = program;
}

// The order decides between plugins of one id: the first wins. The program's own directory is last, so that a
// user can replace its plugins.
std::vector<fs::path> search_path(const std::vector<fs::path>& command_line,
                                  const std::vector<fs::path>& run_file) {
  std::vector<fs::path> out;
  for (const fs::path& d : command_line) append(out, d, "--plugin-path");
  append_variable(out);
  for (const fs::path& d : run_file) append(out, d, "plugins.path");
  if (const fs::path own = program_folder(); !own.empty()) append(out, own, "the program's directory");
  return out;
}

fs::path program_folder() {
  // The link of /proc is read, not resolved: it still names the folder of a program that was replaced.
  std::error_code failed;
  const bool linked = fs::is_symlink(program_file(), failed);
  const fs::path program = linked ? fs::read_symlink(program_file(), failed) : program_file();
  return failed ? fs::path()
                : (program.parent_path() / ".." / "lib" / "trainhost" / "plugins").lexically_normal();
}

}  // namespace trainhost::plugin
