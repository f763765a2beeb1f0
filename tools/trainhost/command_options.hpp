// The parser CLI11 with the commands of trainhost. Only the files of the group `parser` in CMakeLists.txt
// include this: CLI11 takes 20 s to compile, so they are one unit of the unity build.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

/// The application, and what each command's values become once its words were parsed.
/// Options refer to the structs by address, which `results` keeps alive until parse_arguments() returns.
struct Parser {
  CLI::App root{
      "Plan the memory of an LLM training run to the byte, then train it.\n"
      "Without arguments, train a small built-in model on the CPU.",
      "trainhost"};
  std::vector<std::pair<const CLI::App*, std::function<Arguments()>>> results;

  /// A command below `parent` whose values are read into a new A. The parser owns it.
  template <class A>
  std::pair<CLI::App*, A*> add(CLI::App& parent, const char* name, const char* help, const char* footer) {
    CLI::App* app = parent.add_subcommand(name, help);
    app->footer(footer);
    app->allow_extras();  // reported by unknown_argument(), with the nearest name
    auto arguments = std::make_shared<A>();
    results.emplace_back(app, [arguments]() -> Arguments { return *arguments; });
    return {app, arguments.get()};
  }
};

/// Declares every command with its options.
void add_commands(Parser& p);

/// Declares the options of the program itself and every command.
void declare_commands(Parser& p);

/// "plugins new"; "trainhost" for the root.
std::string full_name(const CLI::App& app);

/// The commands of `app` that --help lists.
std::vector<const CLI::App*> listed_commands(const CLI::App& app);

/// The help of a command, in lines of at most the width of the terminal.
std::string fitted_help(const std::string& help);

}  // namespace trainhost::cli
