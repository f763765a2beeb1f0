// What is wrong in a run file that is not valid TOML, and what to write instead.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trainhost::runfile {

/// A syntax error in words of its own. Both texts are escaped for a terminal.
struct TomlMistake {
  std::string what;    // "": the parser's description is the best one
  std::string remedy;  // never empty
};

/// The syntax error in line `line` (from 1) of `text`; `reported` is the parser's description of it. Without
/// a rule for the mistake the remedy names the three forms of a line.
TomlMistake toml_mistake(std::string_view text, std::uint32_t line, std::string_view reported);

/// The line `line` (from 1) of `text`, without white space around it.
std::string_view line_of_toml(std::string_view text, std::uint32_t line);

}  // namespace trainhost::runfile
