// trainhost plugins new: a plugin project to begin with. The words of the command line; what is written:
// core/plugin_template.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "core/base/error.hpp"
#include "core/plugin_template/project.hpp"

namespace trainhost::cli {

class NewPlugin {
 public:
  void add(CLI::App& plugins);
  bool parsed() const { return app_->parsed(); }
  Exit run();

 private:
  CLI::App* app_ = nullptr;
  plugin_template::Request request_;
  std::string directory_;
};

}  // namespace trainhost::cli
