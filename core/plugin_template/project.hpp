// A new plugin project as a list of files: what `trainhost plugins new` writes. project() is pure and decides
// everything; write() puts it on disk and refuses to overwrite. The files themselves are in sdk/templates.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trainhost::plugin_template {

struct Request {
  std::string name;    // the plugin's id, and the name of its file
  std::string kind;    // estimator | trainer
  std::string lang;    // c | c++ | rust
  std::string family;  // model_type that the estimator is for; "" = made from the name
};

struct File {
  std::string path;  // relative to the project, '/' between folders
  std::string text;
  bool executable = false;
};

/// The project's files, sorted by path. Throws usage_error, with the nearest right word, for a name that is
/// no plugin id or that CMake or Cargo could not take, an unknown kind, language or family.
std::vector<File> project(const Request& request);

/// Writes the files below `directory`, which must not exist or be an empty folder: usage_error otherwise,
/// run_error when the disk refuses.
void write(const std::filesystem::path& directory, const std::vector<File>& files);

}  // namespace trainhost::plugin_template
