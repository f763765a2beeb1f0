// See command_plugins_new.hpp.
#include "tools/trainhost/command_plugins_new.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

/// A plugin of that id that is found here already: of two, the first in the search order hides the other. ""
/// where there is none.
std::string same_id(const std::string& id) {
  Options quiet;
  quiet.quiet = true;
  const auto registry = make_registry(quiet, nullptr);
  const plugin::Candidate* found = registry->find(id);
  return found ? found->file.string() : "";
}

}  // namespace

void NewPlugin::add(CLI::App& plugins) {
  app_ =
      plugins.add_subcommand("new", "a complete project for a plugin of your own: source, build, tests, CI");
  app_->add_option("NAME", request_.name, "the plugin's id, a-z 0-9 - _")->required();
  app_->add_option("--kind", request_.kind, "estimator (says what a run takes) or trainer (runs it)");
  app_->add_option("--lang", request_.lang, "c, c++ or rust");
  app_->add_option("--family", request_.family,
                   "model_type of the config.json that an estimator is for (default: NAME)");
  app_->add_option("--dir", directory_,
                   "where to put it, a folder that is new or empty (default: NAME here)");
  app_->allow_extras();
  app_->footer("Example:\n  trainhost plugins new acme-conv --kind=estimator --lang=rust");
}

Exit NewPlugin::run() {
  const std::vector<plugin_template::File> files = plugin_template::project(request_);
  const std::filesystem::path directory = directory_.empty() ? request_.name : directory_;
  plugin_template::write(directory, files);
  std::size_t vendored = 0;
  for (const plugin_template::File& f : files) {
    const bool crate = f.path.rfind("vendor/", 0) == 0;
    if (crate)
      ++vendored;
    else
      fmt::print("  {}\n", escaped((directory / f.path).string()));
  }
  if (vendored)
    fmt::print("  {}  the crate trainhost-sdk, {} files\n", escaped((directory / "vendor").string()),
               vendored);
  if (const std::string other = same_id(request_.name); !other.empty())
    fmt::print(
        "\nNote: the id '{}' is that of {} too. Of two plugins of one id only the first in the search order "
        "is taken: "
        "another name is better.\n",
        request_.name, escaped(other, 4096));
  fmt::print("\nNext: cd {} && ./ci.sh\nREADME.md there says what to change first.\n",
             escaped(directory.string()));
  return Exit::kDone;
}

}  // namespace trainhost::cli
