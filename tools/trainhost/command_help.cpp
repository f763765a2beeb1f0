// trainhost help | version.
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/trainhost/command_options.hpp"
#include "tools/trainhost/result_stream.hpp"

namespace trainhost::cli {
namespace {

/// The command below `app` with the first of these words as its name, and so on.
const CLI::App& command_of(const CLI::App& app, std::span<const std::string> words) {
  if (words.empty()) return app;
  std::vector<std::string> names;
  for (const CLI::App* a : listed_commands(app)) {
    if (a->get_name() == words.front()) return command_of(*a, words.subspan(1));
    names.push_back(a->get_name());
  }
  const std::string below = app.get_parent() ? full_name(app) + " " : "";
  throw usage_error(fmt::format("no command '{}{}'", below, escaped(words.front(), 80)) +
                        did_you_mean(words.front(), names),
                    fmt::format("trainhost {}--help", below));
}

}  // namespace

Exit run(const HelpArguments& a) {
  Parser p;
  declare_commands(p);
  const CLI::App& command = command_of(p.root, a.command);
  const CLI::App* parent = command.get_parent();
  const std::string before = !parent             ? ""
                             : parent == &p.root ? "trainhost"
                                                 : "trainhost " + full_name(*parent);
  fmt::print(result_stream(), "{}", fitted_help(command.help(before)));
  return Exit::kDone;
}

Exit run(const VersionArguments&) {
  fmt::print(result_stream(), "trainhost {}\n", TRAINHOST_VERSION);
  return Exit::kDone;
}

}  // namespace trainhost::cli
