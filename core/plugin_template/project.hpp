// A new plugin project as a list of files, for `trainhost plugins new`. project() is pure and makes all
// decisions; write() creates the files and never overwrites. The templates are in sdk/templates.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trainhost::plugin_template {

struct Request {
  std::string name;    // the plugin's id, and the name of its file
  std::string kind;    // estimator | trainer
  std::string lang;    // c | c++ | rust
  std::string family;  // model_type of the estimator's models; "" = the name
};

struct File {
  std::string path;  // relative to the project directory
  std::string text;
  bool executable = false;
};

/// The project's files, sorted by path. Throws usage_error, with the nearest valid value, for an invalid or
/// reserved name and for an unknown kind, language or family.
std::vector<File> project(const Request& request);

/// Writes the files below `directory`. Throws usage_error unless it is new or empty, run_error if a file
/// cannot be written.
void write(const std::filesystem::path& directory, const std::vector<File>& files);

}  // namespace trainhost::plugin_template
