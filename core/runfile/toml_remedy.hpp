// What to change in a run file that is not valid TOML.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trainhost::runfile {

/// A remedy for the syntax error in line `line` (from 1) of `text`; `reported` is the parser's description of
/// it. Never empty: without a rule for the mistake it names the three forms of a line. Escaped for a
/// terminal.
std::string toml_remedy(std::string_view text, std::uint32_t line, std::string_view reported);

}  // namespace trainhost::runfile
