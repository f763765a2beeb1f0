// The commands and options of the program, as its --help lists them. For tests only.
#pragma once
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/process.hpp"

namespace trainhost::test {

/// The names of options in a help text: "--device".
inline std::set<std::string> options_in(const std::string& help) {
  std::set<std::string> out;
  std::istringstream in(help);
  // Lines of options begin with two spaces and a name; other text may name options of other commands.
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("  -", 0) != 0) continue;
    const std::size_t at = line.find("--");
    if (at == line.npos) continue;
    out.insert(line.substr(at, line.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at) - at));
  }
  return out;
}

inline std::string help_of(std::vector<std::string> command) {
  command.push_back("--help");
  return run_program(command).out;
}

/// Every command: {"train"}, ..., {"plugins"}, {"plugins", "new"}.
inline std::vector<std::vector<std::string>> all_commands(const std::vector<std::string>& above = {}) {
  std::vector<std::vector<std::string>> out;
  std::istringstream in(help_of(above));
  bool commands = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "Subcommands:")
      commands = true;
    else if (line.empty())
      commands = false;
    else if (commands && line.size() > 2 && line[2] != ' ') {
      std::vector<std::string> command = above;
      command.push_back(line.substr(2, line.find(' ', 2) - 2));
      out.push_back(command);
      for (auto& below : all_commands(command)) out.push_back(std::move(below));
    }
  }
  return out;
}

}  // namespace trainhost::test
